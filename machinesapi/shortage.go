package machinesapi

import (
	"strings"

	"github.com/bourse-dev/bourse"
)

// availableText is the end of the Machines API's phrase for a shortage.
const availableText = " available to fulfill request"

// WithShortage adds the Machines API's phrase for a shortage to an order's error text, because clients search for it.
// The phrase names the resource that most workers lack. If the text already contains such a phrase, or no worker
// refused the order for lack of a resource, WithShortage returns the text unchanged.
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
