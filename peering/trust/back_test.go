package trust

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestBackToken(t *testing.T) {
	t.Parallel()
	key, err := NewKey()
	require.NoError(t, err)
	other, err := NewKey()
	require.NoError(t, err)
	make := func(key []byte, own, peer string) Token {
		token, err := BackToken(key, "https://rome:8443", own, fingerprint, peer)
		require.NoError(t, err)
		return token
	}
	first := make(key, "rome", "milan")
	require.Equal(t, first, make(key, "rome", "milan"), "asked again it is the same")
	require.Equal(t, "back-milan", first.ID)
	secrets := map[string]bool{first.Secret: true}
	for _, token := range []Token{make(other, "rome", "milan"), make(key, "turin", "milan"), make(key, "rome", "turin")} {
		secrets[token.Secret] = true
	}
	require.Len(t, secrets, 4)
	parsed, err := ParseToken(make(key, "rome", strings.Repeat("a", longestID)).String())
	require.NoError(t, err)
	require.Equal(t, "rome", parsed.ClusterID)
	_, err = BackToken(key, "http://rome", "rome", fingerprint, "milan")
	require.Error(t, err)
}

func TestReadBack(t *testing.T) {
	t.Parallel()
	text := func(url, id string) string {
		token, err := NewToken(url, id, fingerprint)
		require.NoError(t, err)
		return token.String()
	}
	for name, tc := range map[string]struct{ text, want string }{
		"good":              {text("https://rome.example.com:8443", "rome"), ""},
		"accepted":          {text("https://127.0.7.1:8443", "rome"), ""},
		"loopback":          {text("https://127.0.0.1:10250", "rome"), "127.0.0.1: a peer cannot have a server at this address (127.0.0.0/8: loopback addresses)"},
		"mapped loopback":   {text("https://[::ffff:127.0.0.1]:10250", "rome"), "a peer cannot have a server at this address"},
		"metadata":          {text("https://100.100.100.200", "rome"), "a metadata service of a cloud"},
		"a Service":         {text("https://10.96.0.1", "rome"), "which is one of this cluster"},
		"name of a Service": {text("https://kubernetes.default.svc", "rome"), "a name inside of a cluster"},
		"a short name":      {text("https://liqod-auth:8443", "rome"), "an IP address or a full DNS name is"},
		"number":            {text("https://rome.0x7f000001:8443", "rome"), "an IP address or a full DNS name is"},
		"by address":        {text("https://[fd00::1]:8443", "rome"), ""},
		"of another":        {text("https://rome:8443", "turin"), "it is a token of cluster turin"},
		"link-local":        {text("https://169.254.169.254", "rome"), "169.254.169.254: a peer cannot have a server at this address"},
		"link-local IPv6":   {text("https://[fe80::1]:8443", "rome"), "a peer cannot have a server at this address"},
		"no address at all": {text("https://0.0.0.0:8443", "rome"), "a peer cannot have a server at this address"},
		"no token":          {"liqod1.x", "a damaged token"},
		"far too long":      {"liqod1." + strings.Repeat("a", longestToken), "at most"},
		"nothing":           {"", "not a token"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			token, err := ReadBack(tc.text, "rome", []netip.Prefix{netip.MustParsePrefix("10.96.0.0/12"), netip.MustParsePrefix("127.0.0.0/8")}, []netip.Prefix{netip.MustParsePrefix("127.0.7.0/24")})
			if tc.want == "" {
				require.NoError(t, err)
				require.Equal(t, tc.text, token.String())
				return
			}
			require.ErrorContains(t, err, tc.want)
		})
	}
}
