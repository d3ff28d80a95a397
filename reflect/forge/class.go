package forge

// Class is a class (of ingresses, load balancers, storage) that a provider offers.
type Class struct {
	// Name of the class in the provider.
	Name string
	// Default marks the class for objects whose own class is not offered.
	Default bool
}

// remoteClass returns the class of an object in the provider: its own where the provider
// offers one of that name, else the offered default, else none, and the provider chooses.
func remoteClass(own string, offered []Class) string {
	fallback := ""
	for _, c := range offered {
		if own != "" && c.Name == own {
			return c.Name
		}
		if c.Default && fallback == "" {
			fallback = c.Name
		}
	}
	return fallback
}
