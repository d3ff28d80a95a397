package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"
)

// askedFor is how long an address may take to answer.
const askedFor = time.Second

// A testimony describes a pod, and the addresses that the pod has asked.
type testimony struct {
	Pod, Node, Revision string
	// Run is another one each time that the program starts.
	Run string
	// Asked has the name of the pod that answered, by address; an address without an answer
	// has an empty name.
	Asked map[string]string
}

// An instruction is the answer to a testimony.
type instruction struct {
	// Ask are the addresses to ask next, each as HOST:PORT.
	Ask []string
}

// testify serves the pod's name, and sends an observer a testimony at every tick. The
// observer answers with the addresses to ask next.
func testify(ctx context.Context, observer, every string) error {
	pace, err := positive("the time between two testimonies", every)
	if err != nil {
		return err
	}
	host, _ := os.Hostname()
	t := testimony{Pod: host, Node: os.Getenv("NODE"), Revision: os.Getenv("REVISION"), Run: rand.Text()}
	go func() {
		tick := time.NewTicker(pace)
		defer tick.Stop()
		client := &http.Client{Timeout: askedFor}
		for ctx.Err() == nil {
			next, err := tell(ctx, client, observer, t)
			if err != nil {
				fmt.Println(err)
			} else { // each answer is sent once
				t.Asked = askAll(ctx, next.Ask)
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
			}
		}
	}()
	return serve(ctx, "8080", application(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, host) }))
}

func tell(ctx context.Context, client *http.Client, observer string, t testimony) (next instruction, err error) {
	body, err := json.Marshal(t)
	if err != nil {
		return next, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, observer, bytes.NewReader(body))
	if err != nil {
		return next, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return next, err
	}
	defer resp.Body.Close()
	return next, json.NewDecoder(resp.Body).Decode(&next)
}

// askAll asks addresses at the same time, each by a connection of its own.
func askAll(ctx context.Context, addresses []string) map[string]string {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: askedFor}
	names := make([]string, len(addresses))
	var wg sync.WaitGroup
	for i, address := range addresses {
		wg.Go(func() {
			if body, err := fetch(ctx, client, "http://"+address+"/"); err == nil {
				names[i] = strings.TrimSpace(string(body))
			}
		})
	}
	wg.Wait()
	out := make(map[string]string, len(addresses))
	for i, address := range addresses {
		out[address] = names[i]
	}
	return out
}
