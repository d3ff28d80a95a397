package report

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"text/tabwriter"
	"unicode"

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
	case name == corev1.ResourceMemory, name == corev1.ResourceStorage, name == corev1.ResourceEphemeralStorage, strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix):
		return decimal(q.AsApproximateFloat64()/(1<<30)) + bytesUnit
	case name == corev1.ResourceCPU:
		return decimal(q.AsApproximateFloat64())
	}
	return q.String()
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

// Printable replaces characters that steer a terminal: peers have written some of a text.
func Printable(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) || r == '\n' || r == '\t' {
			return r
		}
		return ' '
	}, text)
}

// Listed lists names after a verb that agrees with their number.
func Listed(one, several string, names []string) string {
	if len(names) == 1 {
		return one + " " + names[0]
	}
	return several + " " + strings.Join(names, ", ")
}

// Table returns rows in columns below their head.
func Table[T any](head string, rows []T, row func(T) string) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 3, ' ', 0)
	_, _ = fmt.Fprintln(w, head)
	for _, r := range rows {
		_, _ = fmt.Fprintln(w, row(r))
	}
	_ = w.Flush() // to a Builder
	return b.String()
}

// table prints a Table; nothing if there are no rows.
func table[T any](b *strings.Builder, head string, rows []T, row func(T) string) {
	if len(rows) > 0 {
		b.WriteString("\n" + Table(head, rows, row))
	}
}

// Place names the cluster that data is in, by the id of a provider; empty is this cluster.
func Place(id string) string {
	if id == "" {
		return thisCluster
	}
	return "cluster " + id
}

func clip(text string) string {
	if len(text) <= longestWords {
		return text
	}
	return strings.ToValidUTF8(text[:longestWords], "") + "…"
}
