package main

import (
	"time"

	"github.com/bourse-dev/bourse/cli/cluster"
	"github.com/bourse-dev/bourse/store"
)

func checkStore(dir string) (cluster.StoreReport, error) {
	r, err := store.Check(dir)
	return cluster.StoreReport(r), err
}

func salvageStore(dir string) (cluster.StoreReport, error) {
	r, err := store.Salvage(dir, time.Now())
	return cluster.StoreReport(r), err
}
