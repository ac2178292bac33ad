package machinesapi

import (
	"strings"

	"github.com/bourse-dev/bourse"
)

// availableText ends the phrase in which the Machines API says what is short.
const availableText = " available to fulfill request"

// WithShortage returns the text of an order's error with the Machines API's phrase in
// front, for clients that look for it: what most workers lack. A text that has
// the phrase stays as it is, and so does that of an order that was refused for
// something else.
func WithShortage(refusals []bourse.Refusal, text string) string {
	if strings.Contains(text, availableText) {
		return text
	}
	counts := map[string]int{}
	most := ""
	for _, r := range refusals {
		if r.Reason != bourse.RefusedResource {
			continue
		}
		counts[r.Resource]++
		if n := counts[r.Resource]; most == "" || n > counts[most] {
			most = r.Resource
		}
	}
	switch most {
	case "":
		return text
	case string(bourse.ResourceCPU):
		most = "CPUs"
	}
	return "insufficient " + most + availableText + "; " + text
}
