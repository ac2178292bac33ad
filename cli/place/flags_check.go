package place

import (
	"encoding/json"
	"strconv"
	"strings"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/workload"
)

// addChecks adds health checks to a config. Each element of list is a value of --check in
// the form [NAME=]TYPE[:PORT][/PATH].
func addChecks(c *bourse.Config, list []string) error {
	if len(list) == 0 {
		return nil
	}
	all := map[string]workload.CheckConfig{}
	for _, text := range list {
		rest, path, hasPath := strings.Cut(text, "/")
		name, rest, named := strings.Cut(rest, "=")
		if !named {
			rest, name = name, strings.ReplaceAll(name, ":", "-")
		}
		kind, port, hasPort := strings.Cut(rest, ":")
		w := workload.CheckConfig{Type: kind}
		if hasPath {
			w.Path = "/" + path
		}
		if hasPort {
			n, err := strconv.ParseUint(port, 10, 16)
			if err != nil || n == 0 {
				return bourse.Errorf(bourse.CodeInvalid, "%s: port %s is not 1 to 65535", bourse.Quoted(text), bourse.Quoted(port))
			}
			w.Port = int(n)
		}
		if _, twice := all[name]; twice {
			return bourse.Errorf(bourse.CodeInvalid, "%s: two checks have this name", bourse.Quoted(text))
		}
		if kind != string(workload.CheckTCP) && kind != string(workload.CheckHTTP) || hasPath && kind == string(workload.CheckTCP) {
			return bourse.Errorf(bourse.CodeInvalid, "%s: use tcp:PORT, http:PORT or http:PORT/PATH", bourse.Quoted(text))
		}
		all[name] = w
	}
	var err error
	c.Checks, err = json.Marshal(all)
	return err
}
