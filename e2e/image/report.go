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

// A report describes a pod, and the addresses that the pod has requested.
type report struct {
	Pod, Node, Revision string
	// Run is another one each time that the program starts.
	Run string
	// Asked has the name of the pod that answered, by address; an address without an answer
	// has an empty name.
	Asked map[string]string
}

// A reply is the answer to a report.
type reply struct {
	// Ask are the addresses to request next, each as HOST:PORT.
	Ask []string
}

// sendReports serves the pod's name, and posts a report to url at every tick. The answer has the
// addresses to request next.
func sendReports(ctx context.Context, url, every string) error {
	pace, err := positive("the time between two reports", every)
	if err != nil {
		return err
	}
	host, _ := os.Hostname()
	r := report{Pod: host, Node: os.Getenv("NODE"), Revision: os.Getenv("REVISION"), Run: rand.Text()}
	go func() {
		tick := time.NewTicker(pace)
		defer tick.Stop()
		client := &http.Client{Timeout: askedFor}
		for ctx.Err() == nil {
			next, err := post(ctx, client, url, r)
			if err != nil {
				fmt.Println(err)
			} else { // each answer is sent once
				r.Asked = askAll(ctx, next.Ask)
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
			}
		}
	}()
	return serve(ctx, "8080", application(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, host) }))
}

func post(ctx context.Context, client *http.Client, url string, r report) (next reply, err error) {
	body, err := json.Marshal(r)
	if err != nil {
		return next, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
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

// askAll requests addresses at the same time, each by a connection of its own.
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
