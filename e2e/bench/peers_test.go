package main

import (
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/watch"
)

func TestPeerNumbers(t *testing.T) {
	for most, want := range map[int][]int{1: {1}, 7: {1, 7}, 10: {1, 10}, 100: {1, 10, 50, 100}, 200: {1, 10, 50, 100, 200}} {
		require.Equal(t, want, (&peerOptions{most: most}).numbers())
	}
	_, err := parse([]string{"--peers=1000"}, io.Discard)
	require.ErrorContains(t, err, "--peers is 1000: at most 999 is accepted")
	require.Equal(t, "home-007", numbered(consumerID, 7))
}

// A mask finds names wherever a stream is split, and holds nothing back that cannot be the beginning of one.
func TestRenamed(t *testing.T) {
	names := newRenaming("home-007", "home-000", "mock-000", "mock-007", "9f-uid-1", "9f-uid-7")
	const text = `{"namespace":"liqo-tenant-home-007","name":"mock-000"} home-008 home- 9f-uid-1 9f`
	const want = `{"namespace":"liqo-tenant-home-000","name":"mock-007"} home-008 home- 9f-uid-7 9f`
	for name, from := range map[string]io.Reader{
		"whole": strings.NewReader(text), "bytes": iotest.OneByteReader(strings.NewReader(text)), "halves": iotest.HalfReader(strings.NewReader(text)),
		"with the end": iotest.DataErrReader(strings.NewReader(text)),
	} {
		t.Run(name, func(t *testing.T) {
			got, err := io.ReadAll(iotest.OneByteReader(&renamed{ReadCloser: io.NopCloser(from), names: names}))
			require.NoError(t, err)
			require.Equal(t, want, string(got))
		})
	}
	require.Zero(t, names.begun("{\"type\":\"ADDED\"}\n"))
	require.Equal(t, 5, names.begun("of mock-"))
	require.Zero(t, names.begun("of mock-000"))
}

func TestArrivals(t *testing.T) {
	a, begin := newArrivals(2, 2), time.Unix(100, 0)
	a.sent[1], a.sent[2] = begin, begin.Add(time.Second)
	object := func(at string) *corev1.ConfigMap { return &corev1.ConfigMap{Data: map[string]string{"at": at}} }
	a.see(0, object("2/1"), begin.Add(10*time.Millisecond))
	a.see(0, object("2/1"), begin.Add(time.Minute)) // something else has changed
	a.see(0, object("1/2"), begin)                  // from before
	a.see(0, object(""), begin)
	a.see(0, object("2/2"), begin.Add(1020*time.Millisecond))
	require.Equal(t, []float64{20, 10}, a.took()[:2])
	watching := watch.NewFake()
	go watching.Modify(object("2/2")) // overtakes the first
	require.NoError(t, a.watch(t.Context(), 1, watching))
	a.seen[1][2], a.seen[1][1] = begin.Add(1030*time.Millisecond), time.Time{}
	require.Equal(t, []float64{20, 10, 30, 1030}, a.took())
	a, watching = newArrivals(1, 1), watch.NewFake()
	watching.Stop()
	require.ErrorContains(t, a.watch(t.Context(), 0, watching), "the watch of provider 1 ended")
}
