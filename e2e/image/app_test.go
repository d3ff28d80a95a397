package main

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestRelayAsksWithTheQuery(t *testing.T) {
	keeper := httptest.NewServer(cache())
	defer keeper.Close()
	file := filepath.Join(t.TempDir(), "price")
	require.NoError(t, os.WriteFile(file, []byte("20"), 0o600))
	t.Setenv("NODE", "n-1")
	front := httptest.NewServer(relay([]string{file, keeper.URL}))
	defer front.Close()
	for _, query := range []string{"?key=lamp&value=7", "?key=lamp"} {
		body, err := fetch(t.Context(), freshClient(), front.URL+"/"+query)
		require.NoError(t, err)
		var have, kept answer
		require.NoError(t, json.Unmarshal(body, &have))
		require.NoError(t, json.Unmarshal(have.Asked[keeper.URL], &kept))
		require.Equal(t, "n-1", have.Node)
		require.Equal(t, map[string]string{file: "20"}, have.Read)
		require.Equal(t, "7", kept.Kept)
	}
	body, err := fetch(t.Context(), freshClient(), front.URL+"/?key=table")
	require.NoError(t, err)
	require.NotContains(t, string(body), "Kept")
}

func TestRelayTellsWhoFails(t *testing.T) {
	for name, source := range map[string]string{"file": "/missing", "URL": "http://127.0.0.1:1", "nonsense": ":"} {
		t.Run(name, func(t *testing.T) {
			far := httptest.NewServer(relay([]string{source}))
			defer far.Close()
			near := httptest.NewServer(relay([]string{far.URL}))
			defer near.Close()
			_, err := fetch(t.Context(), freshClient(), near.URL)
			require.ErrorContains(t, err, "502 Bad Gateway")
			require.ErrorContains(t, err, far.URL)
			resp, err := http.Get(near.URL + "/readyz")
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			require.Equal(t, http.StatusOK, resp.StatusCode)
		})
	}
}

func TestTallySinceTheLastLook(t *testing.T) {
	begin := time.Unix(1000, 0)
	at := func(seconds int) time.Time { return begin.Add(time.Duration(seconds) * time.Second) }
	c := &customer{last: begin}
	c.count(at(1), nil)
	c.count(at(4), errors.New("refused"))
	c.count(at(4), errors.New("refused"))
	c.count(at(5), nil)
	require.Equal(t, tally{Requests: 4, Failed: 2, Pause: 4 * time.Second, Failures: map[string]int{"refused": 2}}, c.look(at(6)))
	c.count(at(7), nil)
	require.Equal(t, tally{Requests: 1, Pause: 3 * time.Second}, c.look(at(10)))
}

func TestUntilUnasked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := make(chan struct{}, 1)
		asked <- struct{}{} // before it began
		go func() {
			for range 3 {
				time.Sleep(patience / 2)
				asked <- struct{}{}
			}
		}()
		begin := time.Now()
		untilUnasked(asked)
		require.Equal(t, patience*5/2, time.Since(begin))
	})
}
