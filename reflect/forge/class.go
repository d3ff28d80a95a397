package forge

// Class is a class of ingresses, load balancers or volumes that a provider offers.
type Class struct {
	// Name is the name of the class in the provider.
	Name string
	// Default marks the class for objects whose own class is not offered.
	Default bool
}

// remoteClass returns the class of an object in the provider. It is the object's own
// class if one of that name is offered, else the offered default, else "", which leaves
// the choice to the provider.
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
