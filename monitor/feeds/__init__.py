"""What leaves the site by itself: events, incidents as feeds, badges."""
