"""The same message as an e-mail: plain text, with the link that ends it in every one."""

from __future__ import annotations

import smtplib
from urllib.parse import urlsplit

from django.conf import settings
from django.core.mail import BadHeaderError, EmailMessage

from monitor.alerts.messages import manage_url
from monitor.alerts.models import Delivery
from monitor.alerts.outbox import DeliveryFailed
from monitor.alerts.rules import News


def is_set_up() -> bool:
    return bool(settings.SEPAL_MAIL_FROM)


def send(delivery: Delivery) -> None:
    """Raises DeliveryFailed."""
    if not is_set_up():
        raise DeliveryFailed("this site sends no e-mail")
    try:
        written(delivery).send()
    except smtplib.SMTPRecipientsRefused as error:
        codes = {code for code, _ in error.recipients.values()}
        refused = all(code >= 500 for code in codes)
        raise DeliveryFailed("the mail server refuses this address", permanent=refused) from error
    except smtplib.SMTPResponseException as error:
        raise DeliveryFailed(f"the mail server answered {error.smtp_code}", permanent=error.smtp_code >= 500) from error
    except BadHeaderError as error:
        raise DeliveryFailed("the message would not be one mail", permanent=True) from error
    except (smtplib.SMTPException, OSError) as error:
        # Not the error's text: it may name addresses of our own network.
        raise DeliveryFailed(f"the mail server does not answer ({type(error).__name__})") from error


def written(delivery: Delivery) -> EmailMessage:
    message, link = delivery.message, manage_url(delivery.subscription)
    confirm = delivery.news == News.CONFIRM
    lines = [message["text"], ""]
    if message.get("since"):
        lines += [f"Since {message['since']}.", ""]
    lines += [f"Confirm: {link}" if confirm else f"More: {message['url']}", ""]
    lines += ["If it was not you, do nothing: without your confirmation this was the only message." if confirm else ""]
    lines += ["" if confirm else f"To end these messages, or to test them: {link}"]
    host = urlsplit(settings.SEPAL_URL).hostname or "localhost"
    return EmailMessage(
        subject=f"[Sepal] {message['title']}",
        body="\n".join(lines).strip() + "\n",
        from_email=settings.SEPAL_MAIL_FROM,
        to=[delivery.subscription.address],
        headers={
            # Django would make one of this machine's own name.
            "Message-ID": f"<{delivery.pk}@{host}>",
            "Auto-Submitted": "auto-generated",
            "List-Unsubscribe": f"<{link}>",
            "List-Unsubscribe-Post": "List-Unsubscribe=One-Click",
        },
    )
