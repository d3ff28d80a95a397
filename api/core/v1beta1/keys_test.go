package v1beta1

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestValidPeerUser(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		id, user string
		want     bool
	}{
		"certificate":               {"rome", "liqo.io:peer:rome:1", true},
		"service account":           {"rome", "system:serviceaccount:liqo-tenant-rome:peer-1", true},
		"a vkubelet":                {"rome", "system:serviceaccount:liqo-tenant-rome:vk-rome", false},
		"a certificate called so":   {"rome", "liqo.io:peer:rome:vk-1", true},
		"another peer's":            {"rome", "liqo.io:peer:oslo:1", false},
		"another, longer id":        {"rome", "liqo.io:peer:rome2:1", false},
		"another tenant namespace":  {"rome", "system:serviceaccount:liqo-tenant-rome2:peer", false},
		"no serial":                 {"rome", "liqo.io:peer:rome", false},
		"an empty serial":           {"rome", "liqo.io:peer:rome:", false},
		"no service account's name": {"rome", "system:serviceaccount:liqo-tenant-rome:", false},
		"an administrator":          {"rome", "system:admin", false},
		"no user":                   {"rome", "", false},
		"no id":                     {"", "liqo.io:peer::1", false},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, tc.want, ValidPeerUser(tc.id, tc.user))
		})
	}
}
