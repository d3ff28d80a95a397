package client

import (
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
)

// mostTallies limits the memory of tallies. Only the paths and selectors of this
// process's own requests make one.
const mostTallies = 4096

// tallies sum up the sizes of responses that belong together, by the URL of what is
// listed or watched.
type tallies struct {
	mu    sync.Mutex
	lists map[string]*tally
	// watches has what the watches of an informer have sent since its last list.
	watches map[string]*tally
}

// tally is a number of bytes.
type tally struct{ bytes atomic.Int64 }

func (t *tally) add(n int64) int64 { return t.bytes.Add(n) }

// begin returns the tally that the response to req belongs to. It returns nil for the
// first page of a list, and for a request that is neither an informer's list nor a watch.
func (t *tallies) begin(req *http.Request) *tally {
	if req.Method != http.MethodGet || isStream(req) || targetOf(req.URL.Path).name != "" && !isWatch(req) {
		return nil
	}
	query := req.URL.Query()
	of := subject(req.URL.Path, query)
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case isWatch(req):
		if query.Get("sendInitialEvents") == "true" { // a list in the form of a watch
			delete(t.watches, of)
		}
		return take(t.watches, of)
	case query.Get("continue") != "":
		return take(t.lists, of)
	case query.Get("limit") == headLimit: // no informer's
		return nil
	}
	delete(t.lists, of)
	delete(t.watches, of)
	return nil
}

func take(m map[string]*tally, of string) *tally {
	if m[of] == nil {
		if len(m) >= mostTallies {
			clear(m)
		}
		m[of] = &tally{}
	}
	return m[of]
}

// subject returns what a request lists or watches.
func subject(path string, query url.Values) string {
	return url.Values{
		"path": {path}, "labelSelector": query["labelSelector"], "fieldSelector": query["fieldSelector"],
	}.Encode()
}
