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

// Beginnings of lines of /proc/PID/status: the highest resident memory, that of now, and of that what is in no
// file.
const (
	peakLine     = "VmHWM:"
	residentLine = "VmRSS:"
	ownLine      = "RssAnon:"
)

// usage has the seconds of CPU that each process has used, by its name.
func (w *world) usage() (map[string]float64, error) { return readAll(w.processes(), cpuOf) }

// memory is one line of /proc/PID/status of each process, in MB (10^6 bytes).
func (w *world) memory(line string) (map[string]float64, error) {
	return readAll(w.processes(), func(pid int) (float64, error) { return memoryOf(pid, line) })
}

func readAll(processes map[string]int, read func(pid int) (float64, error)) (map[string]float64, error) {
	out := map[string]float64{}
	for name, pid := range processes {
		value, err := read(pid)
		if err != nil {
			return nil, fmt.Errorf("reading what %s uses: %w", name, err)
		}
		out[name] = value
	}
	return out, nil
}

// since is what has been used after before.
func since(before, now map[string]float64) map[string]float64 {
	out := map[string]float64{}
	for name, seconds := range now {
		out[name] = seconds - before[name]
	}
	return out
}

// cpuOf is the user and system time of a process, in seconds.
func cpuOf(pid int) (float64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	return cpuSeconds(string(text))
}

// cpuSeconds reads /proc/PID/stat.
func cpuSeconds(stat string) (float64, error) {
	// The name in parentheses may hold anything.
	fields := strings.Fields(stat[strings.LastIndex(stat, ")")+1:])
	const user, system = 11, 12
	if len(fields) <= system {
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

// memoryOf is one line of /proc/PID/status, in MB.
func memoryOf(pid int, line string) (float64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	return statusMB(string(text), line)
}

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

// String is what a table says about it.
func (m machine) String() string {
	return fmt.Sprintf("%d CPUs (%s), Linux %s, %s", m.CPUs, m.Model, m.Kernel, m.Go)
}
