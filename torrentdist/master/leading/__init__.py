"""What a master does because it leads, or may lead: the gate, duties, roles, handing over."""
