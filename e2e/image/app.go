package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// An answer of one service of an application names the pod that gave it, and all that this
// service saw.
type answer struct {
	// Pod and Node that answered; Node is empty unless the pod's variable NODE says it.
	Pod, Node string
	// Read are the contents of the files that the service reads, by name.
	Read map[string]string `json:",omitempty"`
	// Kept is what a cache keeps for the key that was asked for.
	Kept string `json:",omitempty"`
	// Asked are the answers of the services that this one asked, by URL.
	Asked map[string]json.RawMessage `json:",omitempty"`
}

func newAnswer() answer {
	host, _ := os.Hostname()
	return answer{Pod: host, Node: os.Getenv("NODE")}
}

// application serves one function, and what readiness probes ask for.
func application(serve http.HandlerFunc) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/", serve)
	mux.HandleFunc("/readyz", func(http.ResponseWriter, *http.Request) {})
	return mux
}

func respond(w http.ResponseWriter, value any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(value)
}

// patience is how long after the last request nobody is thought to ask any more.
const patience = 8 * time.Second

// linger serves until ctx has ended and then nobody asks any more: a client that does not
// know yet that this pod leaves still gets an answer.
func linger(ctx context.Context, handler http.Handler) error {
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	asked := make(chan struct{}, 1)
	go func() {
		<-ctx.Done()
		untilUnasked(asked)
		stop()
	}()
	return serve(serving, "8080", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/readyz" {
			select {
			case asked <- struct{}{}:
			default: // the one before is not seen yet
			}
		}
		handler.ServeHTTP(w, r)
	}))
}

func untilUnasked(asked <-chan struct{}) {
	quiet := time.NewTimer(patience)
	defer quiet.Stop()
	for {
		select {
		case <-asked:
			quiet.Reset(patience)
		case <-quiet.C:
			return
		}
	}
}

// relay reads the files, and asks the URLs with the query of each request.
func relay(sources []string) http.Handler {
	client := freshClient()
	return application(func(w http.ResponseWriter, r *http.Request) {
		out := newAnswer()
		out.Read, out.Asked = map[string]string{}, map[string]json.RawMessage{}
		for _, source := range sources {
			if err := consult(r, client, source, &out); err != nil {
				http.Error(w, fmt.Sprintf("%s on %s: %v", out.Pod, out.Node, err), http.StatusBadGateway)
				return
			}
		}
		respond(w, out)
	})
}

// freshClient connects for each request: to whom it leads now, not to whom it once led.
func freshClient() *http.Client {
	return &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 10 * time.Second}
}

// consult adds to an answer what a file or a URL says.
func consult(r *http.Request, client *http.Client, source string, out *answer) error {
	if filepath.IsAbs(source) {
		data, err := os.ReadFile(source)
		out.Read[source] = string(data)
		return err
	}
	u, err := url.Parse(source)
	if err != nil {
		return err
	}
	u.RawQuery = r.URL.RawQuery
	body, err := fetch(r.Context(), client, u.String())
	out.Asked[source] = body
	return err
}

// fetch returns what a URL answers; other answers than 200 are errors.
func fetch(ctx context.Context, client *http.Client, url string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %s", url, resp.Status, body)
	}
	return body, err
}

// cache keeps the value of each key in memory.
func cache() http.Handler {
	var mu sync.Mutex
	kept := map[string]string{}
	return application(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		query := r.URL.Query()
		if query.Has("value") {
			kept[query.Get("key")] = query.Get("value")
		}
		out := newAnswer()
		out.Kept = kept[query.Get("key")]
		respond(w, out)
	})
}

// A tally counts the outcomes of the requests since somebody looked last.
type tally struct {
	Requests, Failed int
	// Pause is the longest time without a request that succeeded.
	Pause time.Duration
	// Failures counts the failures by what was said.
	Failures map[string]int
}

// A customer asks one URL again and again.
type customer struct {
	mu    sync.Mutex
	tally tally
	last  time.Time
}

// count notes the end of one request.
func (c *customer) count(end time.Time, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tally.Requests++
	c.tally.Pause = max(c.tally.Pause, end.Sub(c.last))
	if err == nil {
		c.last = end
		return
	}
	c.tally.Failed++
	if c.tally.Failures == nil {
		c.tally.Failures = map[string]int{}
	}
	c.tally.Failures[err.Error()]++
}

// look returns the tally, and begins another.
func (c *customer) look(now time.Time) tally {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := c.tally
	out.Pause = max(out.Pause, now.Sub(c.last))
	c.tally, c.last = tally{}, now
	return out
}

// ask makes one request, and counts it unless ctx has ended.
func (c *customer) ask(ctx context.Context, client *http.Client, url string) {
	_, err := fetch(ctx, client, url)
	if ctx.Err() == nil {
		c.count(time.Now(), err)
	}
}

// load requests the URL at a pace until ctx ends, and serves the tally.
func load(ctx context.Context, url, every string) error {
	pace, err := positive("the time between two requests", every)
	if err != nil {
		return err
	}
	c, client := &customer{last: time.Now()}, freshClient()
	go func() {
		tick := time.NewTicker(pace)
		defer tick.Stop()
		for ctx.Err() == nil {
			c.ask(ctx, client, url)
			select {
			case <-tick.C:
			case <-ctx.Done():
			}
		}
	}()
	return serve(ctx, "8080", application(func(w http.ResponseWriter, _ *http.Request) { respond(w, c.look(time.Now())) }))
}

// positive reads a duration.
func positive(what, text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if err == nil && d <= 0 {
		err = fmt.Errorf("%s is %s: more than 0 is accepted", what, text)
	}
	return d, err
}
