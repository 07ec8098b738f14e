// A resource manager in another language, against the native protocol: it registers, reports nodes and an application,
// asks for a number of allocations, confirms what it is asked to let go, releases everything, and leaves.
//
//	interop ADDRESS RM-ID ASKS
//
// Lines on standard output tell how far it is; the last one is a JSON document with what it saw.
package main

import (
	"encoding/json"
	"fmt"
	"log"
	"os"
	"strconv"
)

const config = `
partitions:
  - name: default
    queues: [{name: root, submitacl: "*", queues: [{name: batch}]}]
`
const batch = 100

type manager struct {
	s         *session
	partition string
	asks      int
	asked     int
	ending    bool
	running   map[string]string // allocation to node
	ended     map[string]bool
	known     map[string]bool // running as we reported, so told again
	Allocated int             `json:"allocated"`
	Twice     int             `json:"twice"`
	Released  int             `json:"released"`
	Resumed   int             `json:"resumed"`
	Restarted int             `json:"restarted"`
	Refused   int             `json:"refused"`
	Left      bool            `json:"left"`
}

func main() {
	if len(os.Args) != 4 {
		log.Fatal("usage: interop ADDRESS RM-ID ASKS")
	}
	asks, err := strconv.Atoi(os.Args[3])
	if err != nil {
		log.Fatal(err)
	}
	registration := dict{"rmID": os.Args[2], "version": "interop", "policyGroup": "queues", "config": config}
	m := &manager{s: newSession(os.Args[1], os.Args[2], registration), asks: asks, running: map[string]string{}, ended: map[string]bool{}, known: map[string]bool{}}
	m.run()
	result, _ := json.Marshal(m)
	fmt.Println(string(result))
}

func (m *manager) run() {
	m.s.next() // Registered
	m.partition = m.s.partitions[0]
	m.report()
	for m.Allocated < m.asks {
		if m.asked < m.asks && m.asked-m.Allocated < batch {
			from := m.asked
			m.asked = min(from+batch, m.asks)
			m.s.command(m.partition, "AllocationRequest", dict{"allocations": m.wanted(from, m.asked)})
		}
		m.hear()
	}
	m.ending = true
	m.release()
	for m.Released < m.asks {
		m.hear()
	}
	m.Resumed = m.s.resumed
	m.s.send(header{kind: "Leave", ref: "leave"}, pack(dict{"reason": "done"}))
	for !m.Left {
		m.hear()
	}
}

// report says everything that the partition has to know before it places anything.
func (m *manager) report() {
	m.s.command(m.partition, "SyncBegin", dict{"reason": "the partition knows nothing"})
	nodes := list{}
	for number := 0; number < 10; number++ {
		capacity := dict{"vcore": 1_000_000, "memory": 1_000_000_000}
		nodes = append(nodes, dict{"nodeID": fmt.Sprintf("n%d", number), "action": 1, "schedulableResource": capacity})
	}
	m.s.command(m.partition, "NodeRequest", dict{"nodes": nodes})
	app := dict{"applicationID": "app", "queueName": "root.batch", "ugi": dict{"user": "gopher"}}
	m.s.command(m.partition, "ApplicationRequest", dict{"new": list{app}})
	wanted := m.wanted(0, m.asked)
	if len(wanted) > 0 {
		m.s.command(m.partition, "AllocationRequest", dict{"allocations": wanted})
	}
	m.s.command(m.partition, "SyncEnd", dict{"nodes": 10, "applications": 1, "allocations": len(wanted)})
}

// wanted gives what has not ended, with the node where it runs if it does.
func (m *manager) wanted(from, to int) list {
	wanted := list{}
	for number := from; number < to; number++ {
		key := fmt.Sprintf("k%d", number)
		if m.ended[key] {
			continue
		}
		one := dict{
			"allocationKey": key, "applicationID": "app", "resourcePerAlloc": dict{"vcore": 100, "memory": 1000},
		}
		if node, runs := m.running[key]; runs {
			one["nodeID"], m.known[key] = node, true
		}
		wanted = append(wanted, one)
	}
	return wanted
}

func (m *manager) release() {
	releases := list{}
	for key := range m.running {
		releases = append(releases, dict{"applicationID": "app", "allocationKey": key, "terminationType": 1})
	}
	m.s.command(m.partition, "AllocationRequest", dict{"releases": dict{"allocationsToRelease": releases}})
}

func (m *manager) hear() {
	h, body := m.s.next()
	switch h.kind {
	case "AllocationResponse":
		for _, one := range items(body, "new") {
			m.runs(one["allocationKey"].(string), one["nodeID"].(string))
		}
		for _, one := range items(body, "released") {
			key := one["allocationKey"].(string)
			delete(m.running, key)
			m.ended[key] = true
			m.Released++
		}
		m.Refused += len(items(body, "rejectedAllocations"))
	case "PartitionRestarted":
		m.Restarted++
		m.report()
		if m.ending {
			m.release()
		}
	case "SyncDone":
		if problem, bad := body["problem"]; bad {
			log.Fatalf("the report was not taken: %v", problem)
		}
	case "Left":
		m.Left = true
	case "Refused":
		log.Fatalf("refused: %v", body)
	}
}

func (m *manager) runs(key, node string) {
	if m.known[key] && m.running[key] == node {
		delete(m.known, key)
		return
	}
	if _, before := m.running[key]; before {
		m.Twice++
	}
	m.running[key] = node
	m.Allocated++
	if m.Allocated%batch == 0 {
		fmt.Printf("allocated %d\n", m.Allocated)
	}
}

func items(body dict, name string) []dict {
	found := []dict{}
	if several, there := body[name].(list); there {
		for _, one := range several {
			found = append(found, one.(dict))
		}
	}
	return found
}
