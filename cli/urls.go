package cli

import (
	"slices"

	"github.com/bourse-dev/bourse/machinesapi"
)

// URLs returns the URLs at which proxies serve what they route, without duplicates, the
// best of each proxy first.
func URLs(list []machinesapi.Proxy) (out []string) {
	most := 0
	for i := range list {
		for j := range list[i].Routes {
			most = max(most, len(list[i].Routes[j].URLs))
		}
	}
	for rank := range most {
		for i := range list {
			for j := range list[i].Routes {
				if all := list[i].Routes[j].URLs; rank < len(all) && !slices.Contains(out, all[rank]) {
					out = append(out, all[rank])
				}
			}
		}
	}
	return out
}
