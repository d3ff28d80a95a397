package config

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"github.com/spf13/viper"
	"go.yaml.in/yaml/v3"
)

// Sources has the sources of settings in addition to the defaults.
type Sources struct {
	// Settings are those of the embedded config.yaml.
	Settings []Setting
	// File is the path of a YAML file of the same form; empty: none.
	File string
	// Env is the environment, as os.Environ gives it.
	Env []string
	// Flags are those that AddFlags made, parsed.
	Flags *pflag.FlagSet
}

// Effective is the effective configuration, with the source of each value.
type Effective struct {
	Config

	settings []Setting
	viper    *viper.Viper
	origin   map[string]string
}

// Load reads all sources, checks every value, and returns an error that names each key
// that is unknown or whose value is not accepted. ValidateFor checks the settings that a
// role needs.
func Load(from Sources) (*Effective, error) {
	e := &Effective{settings: from.Settings, viper: viper.New(), origin: map[string]string{}}
	for _, s := range from.Settings {
		e.viper.SetDefault(s.Key, s.Default)
		e.origin[s.Key] = "default"
	}
	unknown := errors.Join(e.readFile(from.File), e.readEnv(from.Env))
	if from.Flags != nil {
		e.readFlags(from.Flags)
	}
	e.trust()
	// All errors are returned at once, so that one run shows every mistake.
	if err := errors.Join(unknown, e.check()); err != nil {
		return nil, err
	}
	if err := e.viper.UnmarshalExact(&e.Config); err != nil {
		return nil, fmt.Errorf("reading the configuration: %w", err)
	}
	if err := e.together(); err != nil {
		return nil, err
	}
	return e, nil
}

func (e *Effective) value(key string) any { return e.viper.Get(key) }

func (e *Effective) set(key string, value any, origin string) {
	e.viper.Set(key, value)
	e.origin[key] = origin
}

func (e *Effective) keys() []string {
	keys := make([]string, 0, len(e.settings))
	for _, s := range e.settings {
		keys = append(keys, s.Key)
	}
	return keys
}

// isSection reports whether key holds other settings.
func (e *Effective) isSection(key string) bool {
	return slices.ContainsFunc(e.settings, func(s Setting) bool { return strings.HasPrefix(s.Key, key+".") })
}

func (e *Effective) readFile(path string) error {
	if path == "" {
		return nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("reading the configuration file: %w", err)
	}
	root, err := document(text)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	var errs []error
	_ = leaves(root, "", func(key string, name, value *yaml.Node) error {
		where := fmt.Sprintf("%s:%d", path, name.Line)
		if err := e.readLine(key, value, "file "+where); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", where, err))
		}
		return nil
	})
	return errors.Join(errs...)
}

func (e *Effective) readLine(key string, value *yaml.Node, origin string) error {
	known := e.keys()
	switch {
	case e.isSection(key):
		if value.Tag == "!!null" || value.Kind == yaml.MappingNode {
			return nil // a section with nothing in it
		}
		return fmt.Errorf("%s: %q is not accepted: a section, its settings on lines of their own", key, value.Value)
	case pointless[key] != "":
		return fmt.Errorf("%s is not accepted: %s", key, pointless[key])
	case !slices.Contains(known, key):
		return fmt.Errorf("unknown key %s%s", key, didYouMean(key, known))
	case e.origin[key] != "default":
		return fmt.Errorf("%s is given twice", key)
	}
	var raw any
	if err := value.Decode(&raw); err != nil {
		return fmt.Errorf("%s: %w", key, err)
	}
	if raw == nil {
		raw = null{} // to viper, nil is no value at all: the default would stay, unnoticed
	}
	e.set(key, raw, origin)
	return nil
}

// null is a key without a value in a file. No setting accepts it.
type null struct{}

// fallbacks are variables without the prefix LIQOD_: the namespace, addresses and node of a
// pod. They replace defaults only.
var fallbacks = map[string][]string{
	"POD_NAMESPACE": {"namespace"}, "POD_IP": {"vkubelet.nodeAddress"}, "POD_IPS": {"gateway.addresses"}, "NODE_NAME": {"gateway.nodeName", "route.nodeName"},
}

// serviceLink matches the variables that a kubelet makes for a Service whose name begins
// with liqod. They are not settings.
var serviceLink = regexp.MustCompile(`_(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT(_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)$`)

func (e *Effective) readEnv(env []string) error {
	keyOf := map[string]string{}
	names := make([]string, 0, len(e.settings))
	for _, s := range e.settings {
		keyOf[s.Env] = s.Key
		names = append(names, s.Env)
	}
	var errs []error
	for _, pair := range slices.Sorted(slices.Values(env)) {
		name, value, _ := strings.Cut(pair, "=")
		for _, key := range fallbacks[name] {
			if value != "" && e.origin[key] == "default" {
				e.set(key, value, "env "+name)
			}
		}
		if key, ok := keyOf[name]; ok {
			e.set(key, value, "env "+name)
			continue
		}
		if !strings.HasPrefix(name, envPrefix) || strings.HasPrefix(name, "LIQOD_E2E_") ||
			strings.HasPrefix(name, "LIQOD_REQUIRE_") || serviceLink.MatchString(name) {
			continue
		}
		errs = append(errs, fmt.Errorf("unknown environment variable %s%s", name, didYouMean(name, names)))
	}
	return errors.Join(errs...)
}

// check converts every value to the type of its field. Its errors name the accepted values.
func (e *Effective) check() error {
	var errs []error
	for _, s := range e.settings {
		raw := e.value(s.Key)
		k, ok := rules[s.Key]
		if !ok {
			errs = append(errs, fmt.Errorf("%s: in config.yaml, but not in the configuration's rules", s.Key))
			continue
		}
		value, ok := k.parse(raw)
		if !ok {
			errs = append(errs, fmt.Errorf("%s: %s is not accepted (from %s): %s", s.Key, quote(raw), e.origin[s.Key], k.accepts))
			continue
		}
		e.viper.Set(s.Key, value)
	}
	return errors.Join(errs...)
}

func quote(raw any) string {
	switch v := raw.(type) {
	case null:
		return "an empty value"
	case string:
		return fmt.Sprintf("%q", v)
	default:
		return fmt.Sprint(v)
	}
}

// A Setting is one key of config.yaml, in the order of the file.
type Setting struct {
	// Key is its path, such as log.level.
	Key string
	// Help is the comment on its line.
	Help string
	// Default is its value as the YAML parser reads it; a list is a []any.
	Default any
	// Env is its environment variable, such as LIQOD_LOG_LEVEL.
	Env string
}

// Schema returns the settings that the given config.yaml declares.
func Schema(defaults []byte) ([]Setting, error) {
	root, err := document(defaults)
	if err != nil {
		return nil, fmt.Errorf("reading the embedded config.yaml: %w", err)
	}
	var settings []Setting
	err = leaves(root, "", func(key string, name, value *yaml.Node) error {
		s := Setting{Key: key, Env: envName(key), Help: help(name, value)}
		settings = append(settings, s)
		return value.Decode(&settings[len(settings)-1].Default)
	})
	if err != nil {
		return nil, fmt.Errorf("reading the embedded config.yaml: %w", err)
	}
	return settings, nil
}

// Accepts returns what the setting accepts, in words, and as a JSON Schema as far as that can say it.
func (s Setting) Accepts() (words string, schema map[string]any) {
	return rules[s.Key].accepts, maps.Clone(rules[s.Key].schema)
}

const envPrefix = "LIQOD_"

func envName(key string) string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(key, ".", "_"))
}

func help(name, value *yaml.Node) string {
	comment := name.LineComment
	if comment == "" {
		comment = value.LineComment
	}
	if comment == "" && len(value.Content) > 0 {
		// The parser gives a comment after "key:" of a list to the list's first line.
		comment = value.HeadComment
	}
	return strings.TrimSpace(strings.TrimLeft(comment, "# "))
}

// document parses one YAML document whose root is a mapping. An empty one gives nil.
func document(text []byte) (*yaml.Node, error) {
	var doc yaml.Node
	if err := yaml.Unmarshal(text, &doc); err != nil {
		return nil, err
	}
	if len(doc.Content) == 0 {
		return nil, nil
	}
	root := doc.Content[0]
	if root.Kind == yaml.ScalarNode && root.Tag == "!!null" {
		return nil, nil
	}
	if root.Kind != yaml.MappingNode {
		return nil, fmt.Errorf("line %d: not a mapping of settings", root.Line)
	}
	return root, nil
}

// leaves calls visit for every key of the mapping whose value is not a mapping with
// keys of its own.
func leaves(mapping *yaml.Node, prefix string, visit func(key string, name, value *yaml.Node) error) error {
	if mapping == nil {
		return nil
	}
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		name, value := mapping.Content[i], mapping.Content[i+1]
		key := prefix + name.Value
		var err error
		if value.Kind == yaml.MappingNode && len(value.Content) > 0 {
			err = leaves(value, key+".", visit)
		} else {
			err = visit(key, name, value)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Nearest returns the word of known that differs least from word, or "" when none is
// similar enough.
func Nearest(word string, known []string) string {
	best, bestDistance := "", max(len(word)/2, 3)
	for _, k := range known {
		d := distance(strings.ToLower(word), strings.ToLower(k))
		if last := k[strings.LastIndex(k, ".")+1:]; strings.EqualFold(word, last) {
			d = min(d, 1) // the section was forgotten
		}
		if d < bestDistance {
			best, bestDistance = k, d
		}
	}
	return best
}

// distance is the least number of letters to add, remove or replace.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		diagonal := row[0]
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := diagonal
			if a[i-1] != b[j-1] {
				cost++
			}
			diagonal = row[j]
			row[j] = slices.Min([]int{cost, row[j] + 1, row[j-1] + 1})
		}
	}
	return row[len(b)]
}

func didYouMean(word string, known []string) string {
	if k := Nearest(word, known); k != "" {
		return fmt.Sprintf("; did you mean %s?", k)
	}
	return ""
}
