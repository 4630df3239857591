package host

// Serves reports whether this host has sandboxes of a tenant: of its own, and of those that quotas.tenants in host.yaml names. What belongs
// to no tenant is served only by a host that has no tenant itself.
func (c Config) Serves(tenant string) bool {
	if tenant == c.Tenant {
		return true
	}
	_, named := c.Quotas.Tenants[tenant]
	return named && tenant != ""
}

// Offers reports whether runs of a tenant can be of a registered project: those that its entry in quotas.tenants names, and, for the host's
// own tenant, also those that no entry names.
func (c Config) Offers(tenant, project string) bool {
	owned := false
	for name, entry := range c.Quotas.Tenants {
		if _, there := entry.Projects[project]; there {
			owned = true
			if name == tenant {
				return c.Serves(tenant)
			}
		}
	}
	return tenant == c.Tenant && !owned
}

// shared reports whether this host has sandboxes of several tenants.
func (c Config) shared() bool {
	for tenant := range c.Quotas.Tenants {
		if tenant != "" && tenant != c.Tenant {
			return true
		}
	}
	return false
}
