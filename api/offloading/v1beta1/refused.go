package v1beta1

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// ReasonFailedReflection is the reason of events about objects that are not reflected, or not as they are.
const ReasonFailedReflection = "FailedReflection"

// Fields of a Service that a provider refuses, as the API server names fields. NodePortsField stands for
// the node ports of all its ports.
const (
	ServiceTypeField = "spec.type"
	NodePortsField   = "spec.ports[*].nodePort"
)

// IngressHostField stands for what an Ingress has for a host, as the fields of a Service: its rules and its
// certificate; "": what it has for all hosts.
func IngressHostField(host string) string { return "spec.rules[" + host + "]" }

// ReasonDataSource is the reason of events about claims that are to be filled from what a provider does not have.
const ReasonDataSource = "DataSourceNotSupported"

// ReasonReflectionRefused is the type and the reason of a condition of the Node of a virtual node. It is True while the provider
// refuses objects of this cluster, or changes of them. RefusedText has written its message.
const ReasonReflectionRefused = "ReflectionRefused"

// Limits of the message of that condition: objects, and bytes of each cause.
const (
	mostRefused  = 16
	longestCause = 700
)

// RefusedObject is an object of this cluster that a provider does not have, or not as it is here. Kind is in
// lower case. The provider may have written the cause.
//
// +k8s:deepcopy-gen=false
type RefusedObject struct{ Kind, Namespace, Name, Cause string }

// RefusedText writes objects as the message of a condition, each in a line: its kind, its namespace and name, and
// the cause. The first object of each namespace comes before the second ones. It is empty without objects.
func RefusedText(objects []RefusedObject) string {
	slices.SortFunc(objects, func(a, b RefusedObject) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name))
	})
	turns, turn := map[RefusedObject]int{}, map[string]int{}
	for _, o := range objects {
		turn[o.Namespace]++
		turns[o] = turn[o.Namespace]
	}
	slices.SortStableFunc(objects, func(a, b RefusedObject) int { return cmp.Compare(turns[a], turns[b]) })
	var lines []string
	for _, o := range objects[:min(len(objects), mostRefused)] {
		cause := strings.Join(strings.Fields(o.Cause), " ")
		if len(cause) > longestCause {
			cause = strings.ToValidUTF8(cause[:longestCause], "") + "…"
		}
		lines = append(lines, fmt.Sprintf("%s %s/%s: %s", o.Kind, o.Namespace, o.Name, cause))
	}
	if more := len(objects) - mostRefused; more > 0 {
		lines = append(lines, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(lines, "\n")
}

// refusedLine matches a line of RefusedText. Names have the characters of names alone: they become parts of
// commands.
var refusedLine = regexp.MustCompile(`^([a-z]+) ([a-z0-9][a-z0-9-]*)/([A-Za-z0-9][A-Za-z0-9.-]*): (.*)$`)

// RefusedIn returns the objects that the message of a condition names, and how many more there are.
func RefusedIn(message string) (objects []RefusedObject, more int) {
	for line := range strings.SplitSeq(message, "\n") {
		if m := refusedLine.FindStringSubmatch(line); m != nil {
			objects = append(objects, RefusedObject{Kind: m[1], Namespace: m[2], Name: m[3], Cause: m[4]})
		} else {
			_, _ = fmt.Sscanf(line, "and %d more", &more) // another line has no number
		}
	}
	return objects, more
}
