package cmd

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"maps"
	"os"
	"os/exec"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// browser is a headless Chromium that tests drive over two pipes with the DevTools protocol.
type browser struct {
	in      *os.File
	last    atomic.Int64
	mu      sync.Mutex
	waiting map[int64]chan reply
	dead    chan struct{}
}

// tab is a window of a browser of its own, without anything that others have stored.
type tab struct {
	*browser
	t       *testing.T
	session string
	context string
}

type reply struct {
	ID     int64           `json:"id"`
	Result json.RawMessage `json:"result"`
	Error  *struct {
		Message string `json:"message"`
	} `json:"error"`
}

// chromium returns the path of the browser. Without one the test is skipped; in CI it fails.
func chromium(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	const text = "THE PAGE OF liqod dashboard IS NOT TESTED IN A BROWSER; missing: chromium (apt-get install chromium)"
	if os.Getenv("CI") == "true" {
		t.Fatal(text)
	}
	t.Skip(text)
	return ""
}

// browse starts a browser.
func browse(t *testing.T) *browser {
	t.Helper()
	path := chromium(t)
	readCommands, writeCommands, err := os.Pipe()
	require.NoError(t, err)
	readReplies, writeReplies, err := os.Pipe()
	require.NoError(t, err)
	home := t.TempDir()
	cmd := exec.Command(path, "--headless", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
		"--disable-extensions", "--disable-background-networking", "--disable-component-update", "--hide-scrollbars", "--force-color-profile=srgb",
		"--user-data-dir="+home)
	cmd.Env = append(os.Environ(), "HOME="+home, "TZ=UTC", "LANG=C.UTF-8")
	cmd.ExtraFiles = []*os.File{readCommands, writeReplies} // descriptors 3 and 4, where it expects them
	require.NoError(t, cmd.Start())
	require.NoError(t, readCommands.Close())
	require.NoError(t, writeReplies.Close())
	b := &browser{in: writeCommands, waiting: map[int64]chan reply{}, dead: make(chan struct{})}
	go b.receive(bufio.NewReaderSize(readReplies, 1<<20))
	t.Cleanup(func() {
		_ = writeCommands.Close() // it ends without its pipe
		timer := time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() })
		_ = cmd.Wait()
		timer.Stop()
		<-b.dead
		_ = readReplies.Close()
	})
	return b
}

// tab opens a window until the test ends.
func (b *browser) tab(t *testing.T) *tab {
	t.Helper()
	out := &tab{browser: b, t: t}
	var context struct{ BrowserContextID string }
	out.call("Target.createBrowserContext", map[string]any{"disposeOnDetach": true}, &context)
	var target struct{ TargetID string }
	out.call("Target.createTarget", map[string]any{"url": "about:blank", "browserContextId": context.BrowserContextID}, &target)
	var attached struct{ SessionID string }
	out.call("Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}, &attached)
	t.Cleanup(func() {
		_, _ = b.try("", "Target.disposeBrowserContext", map[string]any{"browserContextId": context.BrowserContextID})
	})
	out.session, out.context = attached.SessionID, context.BrowserContextID
	out.call("Page.enable", nil, nil)
	out.size(1366, 900)
	out.scheme("light")
	return out
}

func (b *browser) receive(from *bufio.Reader) {
	defer close(b.dead)
	for {
		data, err := from.ReadBytes(0)
		if err != nil {
			return
		}
		var a reply
		if json.Unmarshal(data[:len(data)-1], &a) != nil || a.ID == 0 {
			continue // an event
		}
		b.mu.Lock()
		if to := b.waiting[a.ID]; to != nil {
			to <- a
			delete(b.waiting, a.ID)
		}
		b.mu.Unlock()
	}
}

// try sends a command, and returns its result.
func (b *browser) try(session, method string, params map[string]any) (json.RawMessage, error) {
	id := b.last.Add(1)
	to := make(chan reply, 1)
	b.mu.Lock()
	b.waiting[id] = to
	b.mu.Unlock()
	message := map[string]any{"id": id, "method": method}
	if params != nil {
		message["params"] = params
	}
	if session != "" {
		message["sessionId"] = session
	}
	data, err := json.Marshal(message)
	if err != nil {
		return nil, err
	}
	if _, err := b.in.Write(append(data, 0)); err != nil {
		return nil, err
	}
	select {
	case a := <-to:
		if a.Error != nil {
			return nil, fmt.Errorf("%s: %s", method, a.Error.Message)
		}
		return a.Result, nil
	case <-b.dead:
		return nil, fmt.Errorf("%s: the browser has ended", method)
	case <-time.After(time.Minute):
		return nil, fmt.Errorf("%s: the browser does not answer", method)
	}
}

func (b *tab) call(method string, params map[string]any, into any) {
	b.t.Helper()
	result, err := b.try(b.session, method, params)
	require.NoError(b.t, err)
	if into != nil {
		require.NoError(b.t, json.Unmarshal(result, into))
	}
}

func (b *tab) size(width, height int) {
	b.t.Helper()
	b.call("Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false}, nil)
}

func (b *tab) scheme(name string) {
	b.t.Helper()
	b.call("Emulation.setEmulatedMedia", map[string]any{"features": []map[string]string{
		{"name": "prefers-color-scheme", "value": name}, {"name": "prefers-reduced-motion", "value": "reduce"}}}, nil)
}

func (b *tab) open(url string) {
	b.t.Helper()
	b.call("Page.navigate", map[string]any{"url": url}, nil)
}

// run returns the value of a JavaScript expression as JSON.
func (b *tab) run(expression string) (string, error) {
	result, err := b.try(b.session, "Runtime.evaluate", map[string]any{"expression": expression, "returnByValue": true, "awaitPromise": true})
	if err != nil {
		return "", err
	}
	var out struct {
		Result           struct{ Value json.RawMessage }
		ExceptionDetails *struct {
			Text      string
			Exception struct{ Description string }
		}
	}
	if err := json.Unmarshal(result, &out); err != nil {
		return "", err
	}
	if out.ExceptionDetails != nil {
		return "", fmt.Errorf("%s: %s", out.ExceptionDetails.Text, out.ExceptionDetails.Exception.Description)
	}
	return string(out.Result.Value), nil
}

// value returns the value of an expression.
func value[T any](b *tab, expression string) (out T) {
	b.t.Helper()
	text, err := b.run(expression)
	require.NoError(b.t, err)
	require.NoError(b.t, json.Unmarshal([]byte(text), &out), "%s is %s", expression, text)
	return out
}

// lazy is a text that is made when it is printed.
type lazy func() string

// String implements fmt.Stringer.
func (l lazy) String() string { return l() }

// until waits for an expression to be true.
func (b *tab) until(expression string) {
	b.t.Helper()
	var problem error
	shown := lazy(func() string {
		text, err := b.run("document.body && document.body.innerText.slice(0, 800)")
		return fmt.Sprintf("%v, %v; the page is %s", problem, err, text)
	})
	require.Eventually(b.t, func() bool {
		text, err := b.run(expression)
		problem = err
		return text == "true"
	}, time.Minute, 50*time.Millisecond, "not true: %s: %s", expression, shown)
}

// press presses and releases a key that makes a character.
func (b *tab) press(key, character string, code int) {
	b.t.Helper()
	for _, kind := range []string{"keyDown", "keyUp"} {
		params := map[string]any{"type": kind, "key": key, "code": key, "windowsVirtualKeyCode": code}
		if kind == "keyDown" {
			params["text"] = character
		}
		b.call("Input.dispatchKeyEvent", params, nil)
	}
}

// picture returns a part of the page as a small PNG.
func (b *tab) picture(top, width, height int) []byte {
	b.t.Helper()
	var shot struct{ Data string }
	b.call("Page.captureScreenshot", map[string]any{"format": "png", "captureBeyondViewport": true,
		"clip": map[string]any{"x": 0, "y": top, "width": width, "height": height, "scale": 1}}, &shot)
	data, err := base64.StdEncoding.DecodeString(shot.Data)
	require.NoError(b.t, err)
	shown, err := png.Decode(bytes.NewReader(data))
	require.NoError(b.t, err)
	var small bytes.Buffer
	require.NoError(b.t, (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&small, reduced(shown)))
	return small.Bytes()
}

// reduced is a picture with its 256 most frequent colours; edges of letters get near ones.
func reduced(from image.Image) *image.Paletted {
	frame := from.Bounds()
	full := image.NewNRGBA(frame)
	draw.Draw(full, frame, from, frame.Min, draw.Src)
	seen := map[color.NRGBA]int{}
	each := func(do func(x, y int, c color.NRGBA)) {
		for y := frame.Min.Y; y < frame.Max.Y; y++ {
			for x := frame.Min.X; x < frame.Max.X; x++ {
				do(x, y, full.NRGBAAt(x, y))
			}
		}
	}
	each(func(_, _ int, c color.NRGBA) { seen[c]++ })
	colours := slices.SortedFunc(maps.Keys(seen), func(a, b color.NRGBA) int { return cmp.Compare(seen[b], seen[a]) })
	var palette color.Palette
	for _, c := range colours[:min(len(colours), 256)] {
		palette = append(palette, c)
	}
	nearest := map[color.NRGBA]uint8{}
	for _, c := range colours {
		nearest[c] = uint8(palette.Index(c))
	}
	out := image.NewPaletted(frame, palette)
	each(func(x, y int, c color.NRGBA) { out.SetColorIndex(x, y, nearest[c]) })
	return out
}
