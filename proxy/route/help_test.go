package route_test

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/proxy/route"
)

var at = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

const web = `[{"internal_port":8080,"autostart":true,"ports":[{"port":80,"handlers":["http"],"force_https":true},{"port":443,"handlers":["tls","http"]}]}]`

func app(name string) bourse.App {
	return bourse.App{Name: bourse.AppName(name), ID: bourse.IDOf(name), Org: "personal", CreatedAt: at}
}

// machine returns machine n of an app, on the worker with the given tag.
func machine(name string, tag bourse.WorkerTag, n int, services string) bourse.Machine {
	a := app(name)
	return bourse.Machine{
		ID: bourse.MachineID(fmt.Sprintf("%s%08x", tag, n)), App: a.Name, AppID: a.ID, Worker: workerOf(tag), Region: "gru",
		Instance: "01JGJ0000000000000000000V1", State: bourse.StateStarted, Boot: bourse.Boot{Number: 1}, CreatedAt: at,
		Config: bourse.Config{Image: "host", StoredConfig: bourse.StoredConfig{Services: json.RawMessage(services)}},
	}
}

func workerOf(tag bourse.WorkerTag) bourse.WorkerID { return bourse.WorkerID(fmt.Sprintf("w%d", tag)) }

// heard is a ReachableWorker function that treats all workers as reachable.
func heard(tag bourse.WorkerTag) (bourse.WorkerID, bool) { return workerOf(tag), true }

func input(apps []bourse.App, machines ...bourse.Machine) route.Input {
	return route.Input{Apps: apps, Machines: machines, ReachableWorker: heard, Domains: []string{"localhost", "apps.example.com"}}
}
