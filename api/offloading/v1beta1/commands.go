package v1beta1

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation"
)

// Command returns a command that people paste, with names that were read from objects in the places of
// %s. It is empty if one of them is no name of an object: whoever wrote it may have meant the shell.
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
