// Command test is the only program of the lab's test image: it is the sandbox's
// pause, a small web server, and the handful of tools that tests run with exec in an
// image without a shell. Linked under the name of a tool it is that tool.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const usage = `usage: test COMMAND
  pause                 wait for SIGTERM (default)
  serve [PORT]          HTTP on 8080: / /env /headers /ip /who?size= /file?path= /exit?code= /unready
                        /ready; UDP on the same port: who answers, to whom, and what was sent
  relay FILE|URL...     HTTP on 8080: who answers, what the files hold, and what the URLs
                        answer to the same query; after SIGTERM until nobody asks
  cache                 HTTP on 8080: the value of ?key=, which &value= sets
  load URL [EVERY]      request URL again and again; HTTP on 8080: what became of the requests
                        since the last look
  report URL [EVERY]    POST to URL again and again that the pod runs, and who answers at the
                        addresses that URL answers with; HTTP on 8080: the pod's name
  ingress CLASS         HTTP on 8080: leads requests as the cluster's Ingresses of the class say
  flood HOST:PORT N     open N connections, and hold them; HTTP on 8080: how many there are;
                        /readyz once there are all
  exit CODE [AFTER]     end with CODE, after a Go duration
  api PATH              print what the API server of the pod's cluster answers; NAMESPACE
                        stands for the pod's own
  get URL [TIMEOUT [HOST]]
                        print the body; 1 if the request fails or the status is 400 or more
  reach TARGET...       print what becomes of each, all at once: tcp://HOST:PORT/SIZE,
                        udp://HOST:PORT/SIZE, icmp://HOST/SIZE, and connect://HOST:PORT of
                        any server of TCP
  stream TARGET FOR     send to udp://HOST:PORT each millisecond; print what came back, and the holes
  lookup NAME           print the addresses of NAME
  cat [FILE...]         print files, or standard input
  write FILE TEXT...    write a file
  env [NAME]            print the environment, or one variable
  echo TEXT...          print
  lines N [EVERY]       print N numbered lines
  sleep DURATION        wait; SIGTERM ends it with 143
  hostname              print the host name
  ignore                wait and ignore SIGTERM
  burn [SHARE]          use a share of a core, from 0 to 1, until SIGTERM
  tar ...               what kubectl cp asks of tar: cf - FILE, xmf - -C DIR
  volume -a create|delete -p PATH ...
                        make or remove the folder of a volume, for local-path-provisioner
  size                  print the terminal's size, as COLUMNSxROWS, once it has one
`

func main() {
	args := os.Args[1:]
	if name := filepath.Base(os.Args[0]); slices.Contains(tools(), name) {
		args = append([]string{name}, args...)
	}
	if len(args) == 0 {
		args = []string{"pause"}
	}
	os.Exit(run(args[0], args[1:]))
}

// tools are the names under which the program may be linked.
func tools() []string {
	return []string{"api", "burn", "cat", "echo", "env", "exit", "get", "hostname", "ignore", "lines", "lookup", "pause", "reach", "serve", "size", "sleep", "stream", "tar", "volume", "write"}
}

func run(name string, args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	var err error
	switch name {
	case "pause":
		reap(ctx)
	case "serve":
		err = serveAll(ctx, arg(args, 0, "8080"))
	case "relay":
		err = linger(ctx, relay(args))
	case "cache":
		err = serve(ctx, "8080", cache())
	case "ingress":
		err = ingressController(ctx, arg(args, 0, ""))
	case "load":
		err = load(ctx, arg(args, 0, ""), arg(args, 1, "1s"))
	case "report":
		err = sendReports(ctx, arg(args, 0, ""), arg(args, 1, "1s"))
	case "flood":
		err = flood(ctx, arg(args, 0, ""), arg(args, 1, ""))
	case "exit":
		return exit(ctx, args)
	case "sleep":
		return sleep(ctx, arg(args, 0, "1h"))
	case "lines":
		err = lines(ctx, args)
	case "burn":
		err = burn(ctx, arg(args, 0, "1"))
	case "ignore":
		signal.Ignore(syscall.SIGTERM)
		select {}
	default:
		return tool(ctx, name, args)
	}
	return code(err)
}

func tool(ctx context.Context, name string, args []string) int {
	switch name {
	case "api":
		return code(api(ctx, accountDir, arg(args, 0, "version")))
	case "get":
		return code(get(ctx, arg(args, 0, ""), arg(args, 1, "5s"), arg(args, 2, "")))
	case "reach":
		return code(reach(ctx, args, os.Stdout))
	case "stream":
		lasts, err := time.ParseDuration(arg(args, 1, "10s"))
		if err != nil {
			return code(err)
		}
		return code(stream(ctx, arg(args, 0, ""), lasts, os.Stdout))
	case "lookup":
		addrs, err := net.DefaultResolver.LookupHost(ctx, arg(args, 0, ""))
		fmt.Println(strings.Join(addrs, "\n"))
		return code(err)
	case "cat":
		return code(cat(args))
	case "write":
		return code(os.WriteFile(arg(args, 0, ""), []byte(strings.Join(args[min(1, len(args)):], " ")+"\n"), 0o644))
	case "env":
		return code(env(args))
	case "echo":
		fmt.Println(strings.Join(args, " "))
		return 0
	case "tar":
		return code(runTar(args))
	case "volume":
		return code(volume(args))
	case "size":
		return code(size(ctx))
	case "hostname":
		host, err := os.Hostname()
		fmt.Println(host)
		return code(err)
	}
	fmt.Fprintf(os.Stderr, "test: unknown command %q\n%s", name, usage)
	return 2
}

func code(err error) int {
	if err == nil {
		return 0
	}
	fmt.Fprintln(os.Stderr, "test:", err)
	return 1
}

func arg(args []string, i int, fallback string) string {
	if i < len(args) {
		return args[i]
	}
	return fallback
}

// reap waits for the end. As a sandbox's first process it inherits orphans.
func reap(ctx context.Context) {
	children := make(chan os.Signal, 16)
	signal.Notify(children, syscall.SIGCHLD)
	for {
		select {
		case <-ctx.Done():
			return
		case <-children:
			for {
				if pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil); pid <= 0 || err != nil {
					break
				}
			}
		}
	}
}

func exit(ctx context.Context, args []string) int {
	n, err := strconv.Atoi(arg(args, 0, "0"))
	if err != nil {
		return code(err)
	}
	if rc := sleep(ctx, arg(args, 1, "0s")); rc != 0 {
		return rc
	}
	return n
}

// sleep returns 143 on SIGTERM, as a shell's child would.
func sleep(ctx context.Context, duration string) int {
	d, err := time.ParseDuration(duration)
	if err != nil {
		if d, err = time.ParseDuration(duration + "s"); err != nil {
			return code(err)
		}
	}
	select {
	case <-ctx.Done():
		return 143
	case <-time.After(d):
		return 0
	}
}

func lines(ctx context.Context, args []string) error {
	n, err := strconv.Atoi(arg(args, 0, "10"))
	if err != nil {
		return err
	}
	for i := range n {
		fmt.Printf("line %d\n", i+1)
		if len(args) > 1 && sleep(ctx, args[1]) != 0 {
			return nil
		}
	}
	return nil
}

func get(ctx context.Context, url, timeout, host string) error {
	d, err := time.ParseDuration(timeout)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	req.Host = host
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(os.Stdout, resp.Body); err != nil {
		return err
	}
	if resp.StatusCode >= http.StatusBadRequest {
		return errors.New(resp.Status)
	}
	return nil
}

func cat(files []string) error {
	if len(files) == 0 {
		_, err := io.Copy(os.Stdout, os.Stdin)
		return err
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if _, err := os.Stdout.Write(data); err != nil {
			return err
		}
	}
	return nil
}

func env(args []string) error {
	if len(args) == 0 {
		_, err := fmt.Println(strings.Join(os.Environ(), "\n"))
		return err
	}
	value, ok := os.LookupEnv(args[0])
	if !ok {
		return fmt.Errorf("%s is not set", args[0])
	}
	_, err := fmt.Println(value)
	return err
}
