package v1beta1

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation"
)

// Command returns a command to paste, in which names of objects replace %s. It returns "" if a name is not
// a valid name of an object, because a shell would run what such a name contains.
func Command(format string, names ...string) string {
	words := make([]any, len(names))
	for i, name := range names {
		if len(validation.IsDNS1123Subdomain(name)) > 0 {
			return ""
		}
		words[i] = name
	}
	return fmt.Sprintf(format, words...)
}
