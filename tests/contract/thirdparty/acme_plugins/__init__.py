"""A third party's package of plug-ins for torrentdist. Tests put its parent directory on the path.
folder.py is a symlink to the plug-in of templates/distributor-plugin."""
