package broker

import (
	"net/http"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/machinesapi"
)

// health says that the broker serves, and asks no one. One that does not know
// its cluster yet is not ready.
func (b *Broker) health(w http.ResponseWriter, _ *request) error {
	if err := b.ready(); err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, machinesapi.Health{Status: "ok", Version: b.Version, Workers: len(b.Directory.Workers())})
}

// regions lists the regions of the exchange.
func (b *Broker) regions(w http.ResponseWriter, _ *request) error {
	counts := map[bourse.Region]int{}
	for _, m := range b.Directory.Workers() {
		counts[m.Region]++
	}
	list := machinesapi.RegionList{Regions: []machinesapi.Region{}}
	for _, code := range b.Directory.Regions() {
		list.Regions = append(list.Regions, machinesapi.Region{Code: code, Name: string(code), Workers: counts[code]})
		if code == b.Region {
			list.Nearest = code
		}
	}
	return writeJSON(w, http.StatusOK, list)
}
