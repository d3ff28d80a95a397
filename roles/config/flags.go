package config

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"
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
	flags.Visit(func(f *pflag.Flag) {
		value, ours := f.Value.(*flagValue)
		if !ours {
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
	root := &yaml.Node{Kind: yaml.MappingNode}
	for _, s := range e.settings {
		at, path := root, strings.Split(s.Key, ".")
		for _, name := range path[:len(path)-1] {
			if n := len(at.Content); n == 0 || at.Content[n-2].Value != name {
				at.Content = append(at.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: name}, &yaml.Node{Kind: yaml.MappingNode})
			}
			at = at.Content[len(at.Content)-1]
		}
		name := &yaml.Node{Kind: yaml.ScalarNode, Value: path[len(path)-1], LineComment: "# " + strings.ReplaceAll(e.origin[s.Key], "\n", " ")}
		at.Content = append(at.Content, name, nodeOf(e.value(s.Key), name))
	}
	out := yaml.NewEncoder(w)
	out.SetIndent(2)
	return errors.Join(out.Encode(root), out.Close())
}

// nodeOf returns a value as YAML. The comment of its name stands behind a value on the same line.
func nodeOf(value any, name *yaml.Node) *yaml.Node {
	node := &yaml.Node{Kind: yaml.ScalarNode, Value: flagTexts(value)[0]}
	switch v := value.(type) {
	case string:
		node.Style = yaml.DoubleQuotedStyle
	case []string:
		node = &yaml.Node{Kind: yaml.SequenceNode}
		for _, one := range v {
			node.Content = append(node.Content, nodeOf(one, nil))
		}
		if len(v) == 0 {
			node.Style, node.LineComment, name.LineComment = yaml.FlowStyle, name.LineComment, ""
		}
	}
	return node
}
