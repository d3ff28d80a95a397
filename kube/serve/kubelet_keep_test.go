package serve

import (
	"context"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
)

// keeping returns a server of node milan at 10.1.2.3 that keeps its certificate.
func keeping(t *testing.T, s *signer, directory string, change func(*KubeletCertificateConfig)) *KubeletCertificate {
	t.Helper()
	cfg := KubeletCertificateConfig{
		Client: s.CertificatesV1(), NodeName: "milan", DNSNames: []string{"milan"}, Addresses: []netip.Addr{netip.MustParseAddr("10.1.2.3")},
		Directory: directory, Log: zap.NewNop(),
	}
	if change != nil {
		change(&cfg)
	}
	k, err := NewKubeletCertificate(cfg)
	require.NoError(t, err)
	return k
}

// live runs k for d of the bubble's time.
func live(t *testing.T, k *KubeletCertificate, d time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	require.NoError(t, k.Run(ctx))
}

func TestKeptCertificate(t *testing.T) {
	for name, tc := range map[string]struct {
		away    time.Duration // between the two processes
		between func(t *testing.T, directory string)
		change  func(*KubeletCertificateConfig)
		lasts   time.Duration
		want    int // requests of the second process
	}{
		"serves the next process":            {lasts: 10 * time.Minute, want: 0},
		"is renewed when it is due":          {lasts: 50 * time.Minute, want: 1},
		"is renewed at once when overdue":    {away: 50 * time.Minute, lasts: time.Minute, want: 1},
		"is of no use when it has ended":     {away: 2 * time.Hour, lasts: time.Minute, want: 1},
		"is of no use for another address":   {change: func(c *KubeletCertificateConfig) { c.Addresses = []netip.Addr{netip.MustParseAddr("10.1.2.4")} }, lasts: time.Minute, want: 1},
		"is of no use for another node":      {change: func(c *KubeletCertificateConfig) { c.NodeName = "turin" }, lasts: time.Minute, want: 1},
		"is of no use when it is broken":     {between: overwrite("garbage"), lasts: time.Minute, want: 1},
		"is of no use when half of it is":    {between: halve, lasts: time.Minute, want: 1},
		"is asked for when it has gone":      {between: func(t *testing.T, d string) { require.NoError(t, os.RemoveAll(d)) }, lasts: time.Minute, want: 1},
		"is asked for when nothing is kept":  {change: func(c *KubeletCertificateConfig) { c.Directory = "" }, lasts: time.Minute, want: 1},
		"is asked for where nothing is kept": {change: func(c *KubeletCertificateConfig) { c.Directory += "-other" }, lasts: time.Minute, want: 1},
	} {
		t.Run(name, func(t *testing.T) {
			directory := filepath.Join(t.TempDir(), "pki")
			synctest.Test(t, func(t *testing.T) {
				s := newSigner(t)
				live(t, keeping(t, s, directory, nil), time.Minute)
				require.Equal(t, 1, s.count())
				time.Sleep(tc.away)
				if tc.between != nil {
					tc.between(t, directory)
				}
				next := keeping(t, s, directory, tc.change)
				live(t, next, tc.lasts)
				require.Equal(t, 1+tc.want, s.count())
				require.True(t, next.Issued())
				require.NoError(t, leaf(t, next).CheckSignatureFrom(s.ca.Cert))
			})
		})
	}
}

func TestKeptCertificateIsPrivate(t *testing.T) {
	directory := filepath.Join(t.TempDir(), "pki")
	synctest.Test(t, func(t *testing.T) {
		live(t, keeping(t, newSigner(t), directory, nil), time.Minute)
	})
	files, err := os.ReadDir(directory)
	require.NoError(t, err)
	require.Len(t, files, 1)
	info, err := files[0].Info()
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
}

func TestDirectoryThatCannotBeWrittenTo(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	synctest.Test(t, func(t *testing.T) {
		k := keeping(t, newSigner(t), file, nil)
		live(t, k, time.Minute)
		require.True(t, k.Issued())
	})
}

func overwrite(text string) func(*testing.T, string) {
	return func(t *testing.T, directory string) {
		require.NoError(t, os.WriteFile(filepath.Join(directory, keptFile), []byte(text), 0o600))
	}
}

func halve(t *testing.T, directory string) {
	path := filepath.Join(directory, keptFile)
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, data[:len(data)/2], 0o600))
}
