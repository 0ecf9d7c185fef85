"""How fast: ratios within one run, since machines drift. ``make bench`` prints them."""
