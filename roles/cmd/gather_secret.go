package cmd

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strings"
	"unicode"

	corev1 "k8s.io/api/core/v1"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	"github.com/liqod/liqod/peering/trust"
)

const (
	// shortestSecret is the length in bytes from which values are removed from all files.
	// Shorter ones would remove words.
	shortestSecret = 8
	// shortestPart is the length of a part of a value, such as a key in a kubeconfig, from
	// which it is removed, too.
	shortestPart = 16

	removed = "(removed: from a Secret)"
)

// openKeys are keys of Secrets whose values are not secret: names, ranges, times, and
// certificates of authorities. They are not removed from other files.
var openKeys = []string{
	corev1.ServiceAccountNamespaceKey, corev1.ServiceAccountRootCAKey, corev1beta1.AddressRangesSecretKey,
	trust.ClusterIDKey, trust.ExpirationKey, trust.UsesKey,
}

// keyLike finds shortestPart letters and digits in a row: keys in hexadecimal and passwords in lower case have them,
// names have dashes and dots.
var keyLike = regexp.MustCompile(`[\p{L}\p{Nd}]{16}`)

// redactor removes values of Secrets from texts.
type redactor struct{ values map[string]bool }

func newRedactor() *redactor { return &redactor{values: map[string]bool{}} }

// learn adds the values of a Secret, the long words in them, and how JSON, YAML and base64
// write them.
func (r *redactor) learn(s *corev1.Secret) {
	for key, value := range s.Data {
		if slices.Contains(openKeys, key) {
			continue
		}
		r.add(string(value))
		if key == corev1.TLSCertKey {
			continue // each line is public
		}
		for _, part := range strings.FieldsFunc(string(value), func(c rune) bool { return unicode.IsSpace(c) || strings.ContainsRune(`"',;{}[]`, c) }) {
			r.addPart(part)
		}
	}
}

func (r *redactor) add(value string) {
	value = strings.TrimSpace(value)
	if len(value) < shortestSecret {
		return
	}
	r.values[value] = true
	for _, encoding := range []*base64.Encoding{base64.StdEncoding, base64.RawStdEncoding, base64.URLEncoding, base64.RawURLEncoding} {
		r.values[encoding.EncodeToString([]byte(value))] = true
		r.values[encoding.EncodeToString([]byte(value+"\n"))] = true
	}
	if quoted, err := json.Marshal(value); err == nil {
		r.values[strings.Trim(string(quoted), `"`)] = true
	}
}

// addPart adds a word of a value if it may be a key or a token: names and URLs stay readable.
func (r *redactor) addPart(part string) {
	part = strings.TrimPrefix(part, "Bearer")
	if len(part) < shortestPart || strings.Contains(part, "://") {
		return
	}
	mixed := strings.ContainsFunc(part, unicode.IsLower) && strings.ContainsFunc(part, unicode.IsUpper) && strings.ContainsFunc(part, unicode.IsDigit)
	if !mixed && !keyLike.MatchString(part) {
		return
	}
	r.add(part)
	// Kubeconfigs have keys as base64.
	if decoded, err := base64.StdEncoding.DecodeString(part); err == nil {
		r.add(string(decoded))
		for line := range strings.Lines(string(decoded)) {
			if line = strings.TrimSpace(line); len(line) >= shortestPart && !strings.HasPrefix(line, "-----") {
				r.values[line] = true
			}
		}
	}
}

// clean removes the values from all texts.
func (r *redactor) clean(files map[string]string) {
	// The longest first, so that no end of a value stays.
	values := slices.SortedFunc(maps.Keys(r.values), func(a, b string) int {
		return cmp.Or(cmp.Compare(len(b), len(a)), cmp.Compare(a, b))
	})
	var pairs []string
	for _, v := range values {
		pairs = append(pairs, v, removed)
	}
	replacer := strings.NewReplacer(pairs...)
	for name, text := range files {
		files[name] = replacer.Replace(text)
	}
}
