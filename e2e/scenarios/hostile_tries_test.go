package scenarios

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"sync"
	"time"
)

// triesVariable is the environment variable with the tries of a process of this program, which
// does nothing else.
const triesVariable = "LIQOD_TEST_TRIES"

// tries are connections that a process with root on a gateway opens.
type tries struct {
	Connect []string // host:port
}

// tryAll writes the problems of the connections, by their addresses. An empty one is none.
func tryAll(text string, out io.Writer) error {
	var what tries
	if err := json.Unmarshal([]byte(text), &what); err != nil {
		return err
	}
	var mu sync.Mutex
	var wg sync.WaitGroup
	problems := map[string]string{}
	for _, address := range what.Connect {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
			defer cancel()
			c, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
			problem := ""
			if err != nil {
				problem = err.Error()
			} else {
				_ = c.Close()
			}
			mu.Lock()
			problems[address] = problem
			mu.Unlock()
		})
	}
	wg.Wait()
	return json.NewEncoder(out).Encode(problems)
}
