// Package reasons has all reasons that conditions, pods and events of liqod give: reasons.yaml
// lists them, each with its meaning and what to do about it. The constants are generated from it.
package reasons
