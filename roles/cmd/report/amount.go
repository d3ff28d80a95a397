package report

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// bytesUnit is the unit of all amounts of bytes.
const bytesUnit = "Gi"

// mostPercent limits what Percent returns.
const mostPercent = 999

// Amount is a quantity of a resource as people read it: bytes in Gi, everything else in units.
func Amount(name corev1.ResourceName, q resource.Quantity) string {
	switch {
	case isBytes(name):
		return decimal(q.AsApproximateFloat64()/(1<<30)) + bytesUnit
	case name == corev1.ResourceCPU:
		return decimal(q.AsApproximateFloat64())
	}
	return q.String()
}

func isBytes(name corev1.ResourceName) bool {
	return name == corev1.ResourceMemory || name == corev1.ResourceStorage || name == corev1.ResourceEphemeralStorage ||
		strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix)
}

// decimal writes a number with at most two digits behind the point.
func decimal(f float64) string {
	return strconv.FormatFloat(math.Round(f*100)/100, 'f', -1, 64)
}

// Percent is how much of a capacity is used, at most 999. Of no capacity at all, any use is 100.
func Percent(used, capacity resource.Quantity) int {
	have, of := used.AsApproximateFloat64(), capacity.AsApproximateFloat64()
	switch {
	case have <= 0:
		return 0
	case of <= 0:
		return 100
	}
	return int(min(math.Round(have/of*100), mostPercent))
}

// share is how much of a resource is used, also in per cent.
func (r Room) share(name corev1.ResourceName) string {
	used, capacity := r.Used[name], r.Capacity[name]
	text := strings.TrimSuffix(Amount(name, used), bytesUnit) + "/" + Amount(name, capacity)
	if capacity.Sign() <= 0 {
		return text
	}
	return fmt.Sprintf("%s (%d%%)", text, Percent(used, capacity))
}

// Count says how many there are of something: 1 pod, 2 pods.
func Count(n int, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %ss", n, one)
}

// Line is Printable, in one line: peers must not add lines of their own to a text either.
func Line(text string) string {
	return strings.NewReplacer("\n", " ", "\t", " ").Replace(Printable(text))
}
