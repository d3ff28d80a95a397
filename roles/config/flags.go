package config

import (
	"fmt"
	"slices"
	"strings"

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
