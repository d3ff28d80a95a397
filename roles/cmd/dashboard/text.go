package dashboard

import (
	"encoding/json"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/liqod/liqod/roles/cmd/report"
)

// longest is how many characters of a text the page gets.
const longest = 1000

// Text is a text that may come from a cluster, also from a peer. The page gets it as one
// printable line of bounded length.
type Text string

// MarshalJSON implements json.Marshaler.
func (t Text) MarshalJSON() ([]byte, error) {
	runes := []rune(report.Line(strings.ToValidUTF8(string(t), "\uFFFD")))
	if len(runes) > longest {
		runes = append(runes[:longest], '…')
	}
	return json.Marshal(string(runes))
}

// lines are the lines of a text.
func lines(text string) (out []Text) {
	if text == "" {
		return nil
	}
	for line := range strings.Lines(text) {
		out = append(out, Text(strings.TrimSuffix(line, "\n")))
	}
	return out
}

const gibi = 1 << 30

// amount is a quantity of a resource as people read it: bytes in Gi, everything else in units.
func amount(name corev1.ResourceName, q resource.Quantity) Text {
	switch {
	case isBytes(name):
		return Text(decimals(q.AsApproximateFloat64()/gibi) + " Gi")
	case name == corev1.ResourceCPU:
		return Text(decimals(q.AsApproximateFloat64()))
	}
	return Text(q.String())
}

func isBytes(name corev1.ResourceName) bool {
	return name == corev1.ResourceMemory || name == corev1.ResourceStorage || name == corev1.ResourceEphemeralStorage ||
		strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix)
}

// decimals prints a number with at most two decimals.
func decimals(f float64) string {
	text := strconv.FormatFloat(f, 'f', 2, 64)
	return strings.TrimSuffix(strings.TrimRight(text, "0"), ".")
}

// percent is how much of a capacity is used. Of no capacity at all, any use is 100.
func percent(used, capacity resource.Quantity) int {
	have, of := used.AsApproximateFloat64(), capacity.AsApproximateFloat64()
	switch {
	case have <= 0:
		return 0
	case of <= 0:
		return 100
	}
	return int(min(have/of*100+0.5, 999))
}
