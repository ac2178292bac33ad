package lookup

import (
	"net/url"
	"slices"
	"strings"

	"github.com/bourse-dev/bourse"
)

// Selection selects the machines that match all fields that are set.
type Selection struct {
	Region   bourse.Region
	Worker   bourse.WorkerID
	states   []string // a machine in any of these states is selected
	metadata map[string]string
}

// Select reads a selection from a request's parameters.
func Select(query url.Values) Selection {
	s := Selection{
		Region: bourse.Region(query.Get("region")), Worker: bourse.WorkerID(query.Get("worker")), metadata: map[string]string{},
	}
	for _, list := range query["state"] {
		for state := range strings.SplitSeq(list, ",") {
			if state = strings.TrimSpace(state); state != "" {
				s.states = append(s.states, state)
			}
		}
	}
	for key, values := range query {
		if name, ok := strings.CutPrefix(key, "metadata."); ok {
			s.metadata[name] = values[0]
		}
	}
	return s
}

// Has reports whether a machine is selected.
func (s *Selection) Has(m *bourse.Machine) bool {
	if s.Region != "" && s.Region != m.Region || s.Worker != "" && s.Worker != m.Worker {
		return false
	}
	if len(s.states) > 0 && !slices.Contains(s.states, string(m.State)) {
		return false
	}
	for k, v := range s.metadata {
		if got, ok := m.Config.Metadata[k]; !ok || got != v {
			return false
		}
	}
	return true
}
