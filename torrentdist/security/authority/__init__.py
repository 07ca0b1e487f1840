"""The CA: certificates, the files of the CA and of hosts, and invitations to join."""
