package inventory

import (
	"zombiezen.com/go/sqlite"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/machinesapi"
	"github.com/bourse-dev/bourse/view/schema"
)

// MeshWorker is a worker with the mesh settings that it has published.
type MeshWorker struct {
	ID         bourse.WorkerID
	Tag        bourse.WorkerTag
	Region     bourse.Region
	Mesh       *bourse.Mesh // nil if the worker is not part of the mesh
	HostStatus machinesapi.HostStatus
}

// MeshWorkers returns a query for all workers, sorted by ID, including those that are not part of
// the mesh.
func MeshWorkers() func(*sqlite.Conn) ([]MeshWorker, error) { return readMeshWorkers }

const meshWorkersSQL = `SELECT r.key, r.tag, r.mesh, r.region, ` + hostColumns + `
	FROM worker_rows AS r LEFT JOIN sites AS s ON s.site = r.site WHERE r.key = r.site ORDER BY r.site`

func readMeshWorkers(c *sqlite.Conn) ([]MeshWorker, error) {
	var list []MeshWorker
	var r cells
	err := schema.Query(c, meshWorkersSQL, func(s *sqlite.Stmt) error {
		r.Stmt = s
		w := MeshWorker{ID: bourse.WorkerID(r.ColumnText(0)), Tag: bourse.WorkerTag(r.ColumnInt64(1) & 0xffffff), Region: bourse.Region(r.ColumnText(3))}
		var m bourse.Mesh
		if !r.ColumnIsNull(2) && r.json(2, &m) {
			w.Mesh = &m
		}
		w.HostStatus, _ = readHost(&r, 4)
		list = append(list, w)
		return nil
	})
	return list, err
}

// PrivateMachine is a machine with a private address.
type PrivateMachine struct {
	ID     bourse.MachineID
	Worker bourse.WorkerID
	App    bourse.AppRef
}

// PrivateMachines returns a query for the given apps' machines that were placed by a broker and have a private address.
// A machine ID may occur more than once, because any worker may publish it. A placement is valid for only one machine:
// if a worker has several machines with the same order, the query returns only the one with the lowest ID.
func PrivateMachines(apps []bourse.AppRef) func(*sqlite.Conn) ([]PrivateMachine, error) {
	return func(c *sqlite.Conn) ([]PrivateMachine, error) {
		var list []PrivateMachine
		for _, app := range apps {
			err := schema.Query(c, privateMachinesSQL, func(s *sqlite.Stmt) error {
				list = append(list, PrivateMachine{ID: bourse.MachineID(s.ColumnText(0)), Worker: bourse.WorkerID(s.ColumnText(1)), App: app})
				return nil
			}, string(app.Name), app.ID)
			if err != nil {
				return nil, err
			}
		}
		return list, nil
	}
}

const privateMachinesSQL = `SELECT min(key), site FROM machine_rows WHERE app = ? AND app_id = ? AND placed AND private_ip != ''
	GROUP BY site, order_id`
