package lab

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestLabEventually(t *testing.T) {
	t.Run("comes", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			looks := 0
			require.NoError(t, Eventually(t.Context(), func(context.Context) error {
				looks++
				return Wrong(nil, looks < 5, "not yet")
			}))
			require.Equal(t, 5, looks)
		})
	})
	t.Run("never comes", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			missing := errors.New("no such thing")
			begin := time.Now()
			err := Eventually(t.Context(), func(context.Context) error { return missing })
			require.ErrorIs(t, err, missing)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.Equal(t, defaultPatience, time.Since(begin))
		})
	})
}

func TestLabFirstAddress(t *testing.T) {
	for cidr, want := range map[string]string{"10.96.0.0/16": "10.96.0.1", "10.1.2.0/24": "10.1.2.1", "fd00:1::/112": "fd00:1::1"} {
		got, err := firstAddress(cidr)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
}

func TestLabClusterOptions(t *testing.T) {
	tests := map[string]struct {
		opts ClusterOptions
		err  string
	}{
		"defaults": {opts: ClusterOptions{Name: "rome"}},
		"no name":  {err: "needs a name"},
		"grace":    {opts: ClusterOptions{Name: "rome", NodeGrace: time.Second}, err: "at least 4s is accepted"},
		"range":    {opts: ClusterOptions{Name: "rome", PodCIDR: "10.0.0.0"}, err: `"10.0.0.0" is not a range`},
		"clock":    {opts: ClusterOptions{Name: "rome", Netns: "n", ClockAhead: time.Minute}, err: "neither EtcdFront nor ClockAhead"},
		"address":  {opts: ClusterOptions{Name: "rome", Address: "localhost"}, err: `"localhost" is not an IP address`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			test.opts.setDefaults()
			err := test.opts.validate()
			if test.err == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, test.err)
		})
	}
}

func TestLabCleanEnviron(t *testing.T) {
	got := cleanEnviron([]string{"PATH=/bin", "KUBECONFIG=/home/me", "KUBERNETES_SERVICE_HOST=1.2.3.4", "HOME=/"})
	require.Equal(t, []string{"PATH=/bin", "HOME=/"}, got)
}

func TestLabAuthority(t *testing.T) {
	authority, err := newAuthority("test")
	require.NoError(t, err)
	parse := func(request CertificateRequest) *x509.Certificate {
		certPEM, _, err := authority.Issue(request)
		require.NoError(t, err)
		block, _ := pem.Decode(certPEM)
		cert, err := x509.ParseCertificate(block.Bytes)
		require.NoError(t, err)
		return cert
	}
	roots := x509.NewCertPool()
	roots.AddCert(authority.cert)

	server := parse(CertificateRequest{CommonName: "system:node:n1", Organizations: []string{"system:nodes"}, Hosts: []string{"n1", "10.0.0.1"}})
	for _, host := range []string{"n1", "10.0.0.1"} {
		_, err = server.Verify(x509.VerifyOptions{Roots: roots, DNSName: host})
		require.NoError(t, err)
	}
	client := parse(CertificateRequest{CommonName: "me"})
	_, err = client.Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	require.NoError(t, err)
	_, err = client.Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})
	require.Error(t, err, "a client's certificate serves nobody")
}

func TestLabPortsAreReserved(t *testing.T) {
	dir := t.TempDir()
	one, other := newPorts(dir), newPorts(dir)
	defer one.close()
	defer other.close()
	seen := map[int]bool{}
	for range 20 {
		for _, p := range []*ports{one, other} {
			taken, err := p.take(3)
			require.NoError(t, err)
			for _, port := range taken {
				require.False(t, seen[port], "port %d given twice", port)
				seen[port] = true
			}
		}
	}
}

func TestProcessFlag(t *testing.T) {
	p := &Process{Options: ProcessOptions{Args: []string{"--server.address=a:1", "--x", "--server.address=b:2"}}}
	require.Equal(t, "b:2", p.Flag("server.address"))
	require.Empty(t, p.Flag("x"))
}

func TestLabWithout(t *testing.T) {
	manifests := []byte("kind: A\napiVersion: v1\nmetadata: {name: x}\n---\nkind: B\napiVersion: v1\nmetadata: {name: x}\n")
	same, err := without(manifests, nil)
	require.NoError(t, err)
	require.Equal(t, manifests, same)
	have, err := without(manifests, []string{"A/x", "B/y"})
	require.NoError(t, err)
	objects, err := parseManifests(have)
	require.NoError(t, err)
	require.Len(t, objects, 1)
	require.Equal(t, "B", objects[0].GetKind())
}

func TestLabLinkNames(t *testing.T) {
	printed := "1: lo: <LOOPBACK,UP> mtu 65536\n7: eth0@if6: <BROADCAST> mtu 1500\n8: liqod-vx: <BROADCAST> mtu 1450\n"
	require.Equal(t, []string{"lo", "eth0", "liqod-vx"}, linkNames(printed))
}

func TestLabDropRules(t *testing.T) {
	require.Equal(t, `table inet labdrop-a {}
delete table inet labdrop-a
table inet labdrop-a {
chain prerouting {
type filter hook prerouting priority -300;
udp dport 51840 drop
ip saddr 192.0.2.1 drop
}
chain input {
type filter hook input priority -300;
tcp dport 6443 drop
}
}
`, dropRules("a", Drops{Arriving: []string{"udp dport 51840", "ip saddr 192.0.2.1"}, Received: []string{"tcp dport 6443"}}))
	require.Equal(t, `table inet labdrop-b {}
delete table inet labdrop-b
table inet labdrop-b {
chain output {
type filter hook output priority -300;
ip daddr 192.0.2.1 drop
}
chain forward {
type filter hook forward priority -300;
ip daddr 192.0.2.1 drop
}
}
`, dropRules("b", Drops{Leaving: []string{"ip daddr 192.0.2.1"}}))
}
