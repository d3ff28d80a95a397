package site

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// Setting is a value of the chart that is not the default.
type Setting struct {
	// Name of the value, such as config.lease.duration.
	Name string
	// Here and Default are in YAML, on one line.
	Here, Default string
}

// Settings are the values of the chart that the site was installed with and that differ from
// the defaults, by name.
func (s *Site) Settings() ([]Setting, error) {
	defaults, err := readYAML(filepath.Join(s.sites.root, "charts", "liqod", "values.yaml"))
	if err != nil {
		return nil, err
	}
	// The chart's config is empty by default: the settings have their defaults from here.
	if defaults["config"], err = readYAML(filepath.Join(s.sites.root, "config.yaml")); err != nil {
		return nil, err
	}
	return differing("", s.chart, defaults)
}

func readYAML(path string) (map[string]any, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading the defaults: %w", err)
	}
	out := map[string]any{}
	if err := yaml.Unmarshal(data, &out); err != nil {
		return nil, fmt.Errorf("reading the defaults in %s: %w", path, err)
	}
	return out, nil
}

// differing are the values that differ from the defaults, section by section. prefix is the
// name of the section, with a dot at its end.
func differing(prefix string, values, defaults map[string]any) ([]Setting, error) {
	var out []Setting
	for _, key := range slices.Sorted(maps.Keys(values)) {
		section, isSection := values[key].(map[string]any)
		below, hasSection := defaults[key].(map[string]any)
		if isSection && hasSection {
			more, err := differing(prefix+key+".", section, below)
			if err != nil {
				return nil, err
			}
			out = append(out, more...)
			continue
		}
		here, err := oneLine(values[key])
		if err != nil {
			return nil, err
		}
		standard, err := oneLine(defaults[key])
		if err != nil {
			return nil, err
		}
		if here != standard {
			out = append(out, Setting{Name: prefix + key, Here: here, Default: standard})
		}
	}
	return out, nil
}

func oneLine(value any) (string, error) {
	data, err := yaml.Marshal(value)
	if err != nil {
		return "", fmt.Errorf("writing a value of the chart: %w", err)
	}
	return strings.ReplaceAll(strings.TrimSpace(string(data)), "\n", " "), nil
}
