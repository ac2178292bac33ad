package machinesapi

import (
	"strings"

	"github.com/bourse-dev/bourse"
)

// availableText is the end of the phrase with which the Machines API reports a shortage.
const availableText = " available to fulfill request"

// WithShortage adds a phrase to the text of an error about an order. With this phrase, for which
// clients search, the Machines API names the resource that most workers lack. If the text already
// contains the phrase, or if the order was refused for other reasons, WithShortage returns the text
// unchanged.
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
