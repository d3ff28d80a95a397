package trust

import (
	"encoding/base64"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var fingerprint = strings.Repeat("0af9", 16)

func newToken(t *testing.T) Token {
	t.Helper()
	token, err := NewToken("https://auth.milan.example:8443", "milan", fingerprint)
	require.NoError(t, err)
	return token
}

func TestTokenThereAndBack(t *testing.T) {
	t.Parallel()
	token := newToken(t)
	text := token.String()
	require.True(t, strings.HasPrefix(text, "liqod1."))
	back, err := ParseToken(" " + text + "\n")
	require.NoError(t, err)
	require.Equal(t, token, back)
	back, err = ParseToken(text[:40] + "\n" + text[40:])
	require.NoError(t, err, "a terminal may have broken the line")
	require.Equal(t, token, back)
	require.NotEqual(t, token.Secret, newToken(t).Secret)
	require.NotEqual(t, token.ID, newToken(t).ID)
}

func TestNewTokenIsChecked(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ url, id, ca string }{
		"no address":        {"", "milan", fingerprint},
		"plain HTTP":        {"http://milan:80", "milan", fingerprint},
		"user in address":   {"https://a:b@milan", "milan", fingerprint},
		"query":             {"https://milan/?a=b", "milan", fingerprint},
		"fragment":          {"https://milan/#b", "milan", fingerprint},
		"opaque":            {"https:milan", "milan", fingerprint},
		"no cluster":        {"https://milan", "", fingerprint},
		"a cluster's name":  {"https://milan", "Milan.", fingerprint},
		"long cluster":      {"https://milan", strings.Repeat("a", 52), fingerprint},
		"no authority":      {"https://milan", "milan", ""},
		"half an authority": {"https://milan", "milan", fingerprint[:40]},
		"capitals":          {"https://milan", "milan", strings.ToUpper(fingerprint)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := NewToken(tc.url, tc.id, tc.ca)
			require.Error(t, err)
		})
	}
}

func TestParseTokenRefuses(t *testing.T) {
	t.Parallel()
	token := newToken(t)
	body := func(text string) string { return tokenPrefix + base64.RawURLEncoding.EncodeToString([]byte(text)) }
	short := token
	short.Secret = base64.RawURLEncoding.EncodeToString(make([]byte, 31))
	odd := token
	odd.ID = "../a"
	for name, text := range map[string]string{
		"nothing":         "",
		"another prefix":  strings.Replace(token.String(), "liqod1", "liqod2", 1),
		"cut":             token.String()[:60],
		"cut by one":      token.String()[:len(token.String())-1],
		"padded":          token.String() + "=",
		"too long":        tokenPrefix + strings.Repeat("A", longestToken),
		"no JSON":         body("hello"),
		"a list":          body("[]"),
		"null":            body("null"),
		"another field":   body(`{"x":1}`),
		"two objects":     body(`{} {}`),
		"a short secret":  short.String(),
		"a path for name": odd.String(),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := ParseToken(text)
			require.Error(t, err)
			require.NotContains(t, err.Error(), token.Secret)
		})
	}
}

func TestMatches(t *testing.T) {
	t.Parallel()
	hash := Hash("one")
	require.Len(t, hash, 64)
	require.True(t, Matches(hash, "one"))
	require.False(t, Matches(hash, "two"))
	require.False(t, Matches(hash, ""))
	require.False(t, Matches("", ""))
	require.False(t, Matches(hash[:63], "one"))
}

func FuzzParseToken(f *testing.F) {
	token, err := NewToken("https://auth.milan.example:8443", "milan", fingerprint)
	require.NoError(f, err)
	f.Add(token.String())
	f.Add("")
	f.Add(tokenPrefix)
	f.Add(tokenPrefix + "e30")
	f.Fuzz(func(t *testing.T, text string) {
		token, err := ParseToken(text)
		if err != nil {
			require.NotEmpty(t, err.Error())
			return
		}
		require.NoError(t, CheckURL(token.AuthURL))
		require.NoError(t, CheckClusterID(token.ClusterID))
		back, err := ParseToken(token.String())
		require.NoError(t, err)
		require.Equal(t, token, back)
	})
}
