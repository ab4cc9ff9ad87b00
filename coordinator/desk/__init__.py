"""What the site's staff sees and decides, under /admin/.

    models.py       rulings (quarantine, maintenance, banners), notes on incidents, failed log-ins
    rulings.py      what of it holds now: the monitor and the coordinator obey it (`monitor.rulings`)
    decisions.py    what follows at once from a ruling, and the audit's words
    board.py        which ranges of blocks need action; gathered.py reads what it rests on
    oddities.py     records without a server behind them, ids and names that several machines use
    replay.py       the pages as they were at an earlier check
    throttle.py     failed log-ins, by name and by address; forms.py the log-in form
    site.py         the admin's addresses; policy.py its content policy; pages.py its doors
    rulings_admin.py hidden_admin.py records_admin.py   lists and forms

Public pages know nothing of this room but what they are told through `monitor.rulings` and the banner at their top.
"""
