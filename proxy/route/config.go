package route

import (
	"slices"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/workload"
)

// parsedConfig contains the parts of a configuration that affect routing. It is immutable. Machines with equal
// configurations share one parsedConfig.
type parsedConfig struct {
	services []workload.Service
	checks   []workload.Check // checks that decide whether requests may reach a machine
	standby  bool
}

// parsed returns a machine's parsed configuration, and caches it for the next table. before is the cache from the
// previous table.
func (b *Builder) parsed(m *bourse.Machine, before map[string]*parsedConfig) *parsedConfig {
	key := string(m.Config.Services) + "\x00" + string(m.Config.Checks)
	if len(m.Config.Standbys) > 0 {
		key += "\x00spare"
	}
	r := b.configs[key]
	if r == nil {
		if r = before[key]; r == nil {
			r = parseConfig(&m.Config)
		}
		b.configs[key] = r
	}
	return r
}

// parseConfig parses a configuration.
func parseConfig(c *bourse.Config) *parsedConfig {
	return &parsedConfig{
		services: workload.Services(c),
		checks:   slices.DeleteFunc(workload.Checks(c), func(c workload.Check) bool { return c.Kind == workload.Informational }),
		standby:  len(c.Standbys) > 0,
	}
}

// health describes the health of each service of m: failing[i] is the name of the first failing check that blocks
// requests for service i, or "". unproven[i] reports whether a check that can block such requests has neither passed
// nor failed yet.
func (r *parsedConfig) health(m *bourse.Machine) (failing []string, unproven []bool) {
	failing, unproven = make([]string, len(r.services)), make([]bool, len(r.services))
	if m.State != bourse.StateStarted || len(r.checks) == 0 {
		return failing, unproven
	}
	statuses := map[string]bourse.CheckState{}
	if m.Checks != nil && m.Checks.Boot == m.Boot.Number {
		for _, s := range m.Checks.Results {
			statuses[s.Name] = s.Status
		}
	}
	for i := range r.services {
		for j := range r.checks {
			c := &r.checks[j]
			if !c.AffectsRouting(i + 1) {
				continue
			}
			switch statuses[c.Name] {
			case bourse.CheckPassing:
			case bourse.CheckCritical:
				if failing[i] == "" {
					failing[i] = c.Name
				}
			default:
				unproven[i] = true
			}
		}
	}
	return failing, unproven
}
