package config

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

// flagValue is the text of a flag, or the elements of a list. Load checks it together with
// the other sources; the parser of the command line accepts any text.
type flagValue struct {
	kind     string
	list     bool
	text     string
	elements []string
}

// String implements pflag.Value.
func (f *flagValue) String() string { return f.text }

// Type implements pflag.Value. --help shows it as the type of the value.
func (f *flagValue) Type() string { return f.kind }

// Set implements pflag.Value. A list's flag may be repeated.
func (f *flagValue) Set(text string) error {
	f.text = text
	if f.list {
		for _, one := range elements(text) {
			f.elements = append(f.elements, fmt.Sprint(one))
		}
		f.text = strings.Join(f.elements, ",")
	}
	return nil
}

// longList is the number of elements from which --help counts a default instead of
// listing it.
const longList = 4

// otherNames are flags that documents name, with the settings that they stand for.
var otherNames = map[string]string{"enable-apiserver-support": "vkubelet.enableAPIServerSupport"}

// AddFlags adds one flag for each setting, named as its key.
func AddFlags(flags *pflag.FlagSet, settings []Setting) {
	flags.SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		if key, ok := otherNames[name]; ok {
			name = key
		}
		return pflag.NormalizedName(name)
	})
	for _, s := range settings {
		value := &flagValue{kind: rules[s.Key].name, list: rules[s.Key].name == "list"}
		flag := flags.VarPF(value, s.Key, "", s.Help)
		switch many := elements(s.Default); {
		case !value.list:
			flag.DefValue = fmt.Sprint(s.Default)
		case len(many) >= longList:
			flag.DefValue = fmt.Sprintf("%d elements", len(many))
		case len(many) > 0:
			flag.DefValue = fmt.Sprint(many)
		}
		if value.kind == "bool" {
			flag.NoOptDefVal = "true"
		}
	}
}

func (e *Effective) readFlags(flags *pflag.FlagSet) {
	known := e.keys()
	flags.Visit(func(f *pflag.Flag) {
		value, ours := f.Value.(*flagValue)
		if !ours || !slices.Contains(known, f.Name) {
			return
		}
		var raw any = value.text
		if value.list {
			raw = value.elements
		}
		e.set(f.Name, raw, "flag --"+f.Name)
	})
}

// notVKubelets are the settings, and sections of settings, that apply to this process or to
// another role only. They would be wrong in a vkubelet.
var notVKubelets = []string{
	"controller", "webhook", "peering", "discovery", "authentication", "sharing", "ipam", "gateway", "route",
	"networking.podCIDRs", "networking.serviceCIDRs", "networking.externalCIDRs", "networking.nodeCIDRs", "networking.reservedSubnets", "networking.reach", "networking.externalEndpoints",
	"health.heartbeat",        // is kept by role controller
	"kubeconfig", "namespace", // a vkubelet runs elsewhere
	"vkubelet.virtualNode", "vkubelet.nodeAddress", // differ from one virtual node to the next
	"vkubelet.certificateDirectory",                       // is a volume of the Deployment
	"reflection.skipLabels", "reflection.skipAnnotations", // the vkubelet reads them from the VirtualNode's status, without a restart
	"reflection.sharedZones", // is for role controller
	"server.address",         // the probes of the Deployment ask the default port
}

// VKubeletArgs returns the flags that give a vkubelet the settings of this process: one
// for each setting that concerns vkubelets and is not the default, in the order of
// config.yaml; for a list one for each element, or one without a value where the list is
// empty and its default is not.
func (e *Effective) VKubeletArgs() []string {
	var args []string
	for _, s := range e.settings {
		if slices.ContainsFunc(notVKubelets, func(k string) bool { return s.Key == k || strings.HasPrefix(s.Key, k+".") }) {
			continue
		}
		have := flagTexts(e.value(s.Key))
		if usual, ok := rules[s.Key].parse(s.Default); ok && slices.Equal(have, flagTexts(usual)) {
			continue
		}
		for _, text := range have {
			args = append(args, "--"+s.Key+"="+text)
		}
	}
	return args
}

// flagTexts returns the texts of a setting's flags for a value of its type.
func flagTexts(value any) []string {
	switch v := value.(type) {
	case []string:
		if len(v) == 0 {
			return []string{""}
		}
		return v
	case time.Duration:
		return []string{short(v)}
	default:
		return []string{fmt.Sprint(v)}
	}
}

// Print writes the configuration as YAML in the order of config.yaml. A comment beside each
// value names its source. --config accepts the output. It contains no secret, because no
// setting is one.
func (e *Effective) Print(w io.Writer) error {
	var open []string
	for _, s := range e.settings {
		path := strings.Split(s.Key, ".")
		sections, name := path[:len(path)-1], path[len(path)-1]
		same := 0
		for same < len(open) && same < len(sections) && open[same] == sections[same] {
			same++
		}
		for depth := same; depth < len(sections); depth++ {
			if _, err := fmt.Fprintf(w, "%s%s:\n", indent(depth), sections[depth]); err != nil {
				return err
			}
		}
		open = sections
		if err := e.printValue(w, len(sections), name, s.Key); err != nil {
			return err
		}
	}
	return nil
}

func indent(depth int) string { return strings.Repeat("  ", depth) }

func (e *Effective) printValue(w io.Writer, depth int, name, key string) error {
	origin := strings.ReplaceAll(e.origin[key], "\n", " ")
	value := e.value(key)
	elements, isList := value.([]string)
	if !isList || len(elements) == 0 {
		_, err := fmt.Fprintf(w, "%s%s: %s # %s\n", indent(depth), name, scalar(value), origin)
		return err
	}
	lines := []string{fmt.Sprintf("%s%s: # %s", indent(depth), name, origin)}
	for _, one := range elements {
		lines = append(lines, indent(depth+1)+"- "+scalar(one))
	}
	_, err := fmt.Fprintln(w, strings.Join(lines, "\n"))
	return err
}

func scalar(value any) string {
	switch v := value.(type) {
	case time.Duration:
		return short(v)
	case string:
		return fmt.Sprintf("%q", v)
	default:
		return fmt.Sprint(v)
	}
}
