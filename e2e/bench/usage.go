package main

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
)

// ticksPerSecond is the unit of times in /proc, the same on every Linux that Go runs on.
const ticksPerSecond = 100

// usage has the seconds of CPU that each process has used, by its name.
type usage map[string]float64

func (w *world) usage() (usage, error) {
	u := usage{}
	for _, p := range w.processes() {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.pid))
		if err != nil {
			return nil, fmt.Errorf("reading the times of %s: %w", p.name, err)
		}
		if u[p.name], err = cpuSeconds(string(text)); err != nil {
			return nil, fmt.Errorf("reading the times of %s: %w", p.name, err)
		}
	}
	return u, nil
}

// since is what has been used after before.
func (u usage) since(before usage) map[string]float64 {
	out := map[string]float64{}
	for name, seconds := range u {
		out[name] = seconds - before[name]
	}
	return out
}

// cpuSeconds reads /proc/PID/stat: user and system time of the process.
func cpuSeconds(stat string) (float64, error) {
	// The name in parentheses may hold anything.
	_, rest, ok := strings.Cut(stat[strings.LastIndex(stat, ")")+1:], " ")
	fields := strings.Fields(rest)
	const user, system = 11, 12
	if !ok || len(fields) <= system {
		return 0, fmt.Errorf("%q is not understood", stat)
	}
	var ticks int64
	for _, i := range []int{user, system} {
		n, err := strconv.ParseInt(fields[i], 10, 64)
		if err != nil {
			return 0, err
		}
		ticks += n
	}
	return float64(ticks) / ticksPerSecond, nil
}

// peaks are the highest resident memory that each role, and the mirror, has had, in MB
// (10^6 bytes).
func (w *world) peaks() (map[string]float64, error) { return w.memory(peakLine) }

// peakLine begins the line of /proc/PID/status with the highest resident memory.
const peakLine = "VmHWM:"

// residentLine begins the line with the resident memory of now.
const residentLine = "VmRSS:"

// statusMB reads a line of /proc/PID/status.
func statusMB(status, begins string) (float64, error) {
	for line := range strings.Lines(status) {
		if value, ok := strings.CutPrefix(line, begins); ok {
			kib, err := strconv.ParseFloat(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(value), "kB")), 64)
			return kib * 1024 / 1e6, err
		}
	}
	return 0, fmt.Errorf("no %s in it", strings.TrimSuffix(begins, ":"))
}

// machine is where it was measured.
type machine struct {
	CPUs   int    `json:"cpus"`
	Model  string `json:"model"`
	Kernel string `json:"kernel"`
	Go     string `json:"go"`
}

func thisMachine() machine {
	m := machine{CPUs: runtime.NumCPU(), Go: runtime.Version()}
	// Unknown is no reason to stop.
	if text, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(text)) {
			if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
				m.Model = strings.TrimSpace(value)
			}
		}
	}
	if text, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		m.Kernel = strings.TrimSpace(string(text))
	}
	return m
}
