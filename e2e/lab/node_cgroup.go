package lab

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// nodeCgroups are the control groups of a node, one for each hierarchy: children of
// this process's own, so that whatever limits this process limits the node too.
type nodeCgroups struct {
	// dirs are the groups that the node joins.
	dirs []string
	// v1 are the mount options of the version 1 hierarchies; none with version 2.
	v1 []string
}

const cgroupRoot = "/sys/fs/cgroup"

// removeGroups removes groups and those below them, deepest first, as soon as the
// processes in them are gone.
const removeGroups = `for dir in "$@"; do
	for try in $(seq 100); do
		find "$dir" -depth -type d -exec rmdir {} + 2>/dev/null
		[ -d "$dir" ] || break
		sleep 0.1
	done
done`

func newNodeCgroups(l *Lab, name string) (nodeCgroups, error) {
	groups, err := planNodeCgroups(name)
	if err != nil {
		return nodeCgroups{}, err
	}
	if err := l.Undo("sh", groups.removal()...); err != nil {
		return nodeCgroups{}, err
	}
	for _, dir := range groups.dirs {
		if err := makeCgroup(dir); err != nil {
			return nodeCgroups{}, err
		}
	}
	return groups, nil
}

func (g nodeCgroups) removal() []string { return append([]string{"-c", removeGroups, "sh"}, g.dirs...) }

func (g nodeCgroups) remove(ctx context.Context) error {
	_, err := command(ctx, "", "sh", g.removal()...)
	return err
}

func planNodeCgroups(name string) (nodeCgroups, error) {
	// Version 2 has not been exercised on the machine that this was written on.
	if _, err := os.Stat(filepath.Join(cgroupRoot, "cgroup.controllers")); err == nil {
		return planUnified(name)
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nodeCgroups{}, fmt.Errorf("looking at the machine's cgroups: %w", err)
	}
	mine, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nodeCgroups{}, fmt.Errorf("reading this process's cgroups: %w", err)
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nodeCgroups{}, fmt.Errorf("reading the mounts: %w", err)
	}
	return planV1(name, mine, mounts)
}

// planUnified puts the node at the top: only there may a group with processes, such
// as the one of a login session, have children with controllers.
func planUnified(name string) (nodeCgroups, error) {
	data, err := os.ReadFile(filepath.Join(cgroupRoot, "cgroup.controllers"))
	if err != nil {
		return nodeCgroups{}, fmt.Errorf("reading the cgroup controllers: %w", err)
	}
	for _, controller := range strings.Fields(string(data)) {
		// One that cannot be handed down is missed by the kubelet, which names it.
		_ = os.WriteFile(filepath.Join(cgroupRoot, "cgroup.subtree_control"), []byte("+"+controller), 0)
	}
	return nodeCgroups{dirs: []string{filepath.Join(cgroupRoot, name)}}, nil
}

// planV1 matches the lines of /proc/self/cgroup with the mounts of their hierarchies.
func planV1(name string, mine, mountinfo []byte) (nodeCgroups, error) {
	var groups nodeCgroups
	for scanner := bufio.NewScanner(bytes.NewReader(mine)); scanner.Scan(); {
		parts := strings.SplitN(scanner.Text(), ":", 3)
		if len(parts) != 3 || parts[1] == "" {
			continue
		}
		hierarchy, path := parts[1], parts[2]
		if strings.HasPrefix(hierarchy, "name=") && hierarchy != "name=systemd" {
			continue
		}
		point, root := v1Mount(mountinfo, hierarchy)
		if point == "" {
			continue
		}
		path = "/" + strings.TrimPrefix(strings.TrimPrefix(path, root), "/")
		groups.dirs = append(groups.dirs, filepath.Join(point, path, name))
		if strings.HasPrefix(hierarchy, "name=") {
			hierarchy = "none," + hierarchy
		}
		groups.v1 = append(groups.v1, hierarchy)
	}
	if len(groups.dirs) == 0 {
		return groups, fmt.Errorf("no cgroup hierarchy is mounted below %s: nodes need version 1 controllers or version 2 there", cgroupRoot)
	}
	return groups, nil
}

// v1Mount finds where a hierarchy is mounted, and which of its groups is seen there.
func v1Mount(mountinfo []byte, hierarchy string) (point, root string) {
	for scanner := bufio.NewScanner(bytes.NewReader(mountinfo)); scanner.Scan(); {
		front, back, ok := strings.Cut(scanner.Text(), " - ")
		fields, source := strings.Fields(front), strings.Fields(back)
		if !ok || len(fields) < 5 || len(source) < 3 || source[0] != "cgroup" {
			continue
		}
		// The options are "rw,cpu,cpuacct" where the hierarchy is "cpu,cpuacct".
		if strings.HasSuffix(","+source[2], ","+hierarchy) {
			return fields[4], fields[3]
		}
	}
	return "", ""
}

func makeCgroup(dir string) error {
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("making a cgroup of a node: %w", err)
	}
	// A new cpuset allows nothing, until it is told what.
	for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
		value, err := os.ReadFile(filepath.Join(filepath.Dir(dir), file))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("reading the parent of a node's cgroup: %w", err)
		}
		if err := os.WriteFile(filepath.Join(dir, file), value, 0); err != nil {
			return fmt.Errorf("setting %s of a node's cgroup: %w", file, err)
		}
	}
	return nil
}
