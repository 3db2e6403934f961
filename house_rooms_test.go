package house_test

import (
	"strings"
	"testing"
)

// allowedImports lists every package with the packages of this module that it may import. A package
// may import only packages above it in this list, and of those only the ones that are named. Names
// are relative to internal/ or, with a slash, to the top.
const allowedImports = `
invariants:
printable:
access:
pagecache:
audit: access
tune:
perfmodel:
placement: access perfmodel
placement/builder: access placement
placement/simulated: access placement
placement/policies: access pagecache placement placement/builder placement/simulated
placement/replan: access perfmodel placement
placement/policytest: access perfmodel placement placement/simulated
placement/policytest/example: access placement placement/builder
simulate: access perfmodel placement placement/simulated placement/policies
size:
suggest:
remedy: perfmodel size
stats: printable perfmodel placement size remedy
inputfile:
wholefile:
crashtest:
leaktest:
proctest:
goldentest:
meter: perfmodel stats
rerun: access perfmodel placement meter
quantity: perfmodel
environment: perfmodel suggest inputfile quantity
analysis: access pagecache perfmodel placement/policies simulate size suggest remedy inputfile environment
stats/prometheus: stats
probe:
dataset: printable
digest:
dataset/sourcetest: dataset
dataset/tree: dataset
dataset/retry: dataset
dataset/files: probe dataset
dataset/folder/indexfile: size printable probe wholefile dataset dataset/tree
dataset/folder/excerpt: dataset dataset/tree
dataset/folder: printable probe dataset dataset/tree dataset/folder/excerpt
    dataset/folder/indexfile
patience:
storageclass: patience printable size
config: placement/policies size suggest inputfile quantity storageclass
pressure: size
storageclass/arena: invariants
storageclass/storageclasstest: digest storageclass
storageclass/memory: invariants size storageclass storageclass/arena
storageclass/file/disk: storageclass
storageclass/file/layout: storageclass
storageclass/file: invariants size digest storageclass storageclass/arena storageclass/file/disk storageclass/file/layout
staging: invariants
protocol: printable
transform/pixels:
transform/codec: transform/pixels
transform: suggest transform/pixels transform/codec
networktest:
transform/runner: size tune stats transform
cache/cachetest: dataset storageclass storageclass/memory storageclass/file
writeback: patience perfmodel meter storageclass
pool: invariants patience tune
cache/digests: printable dataset digest
cache/flights: invariants
cache: invariants perfmodel stats meter dataset storageclass writeback pool cache/digests cache/flights
stage/unusable: stats dataset printable
stage: invariants access stats meter dataset staging cache stage/unusable
failure: printable dataset storageclass config staging cache cache/digests
catalog: invariants printable perfmodel stats environment dataset storageclass config cache failure
request/requesttest:
request: printable access dataset config transform failure
planner: access perfmodel placement placement/policies placement/replan failure
lockstep: invariants failure
admission:
identity: inputfile
identity/identitytest:
exchange/wire: digest
exchange/exchangetest: digest exchange/wire
exchange/pacing:
exchange/link: invariants digest identity exchange/wire
exchange: invariants digest admission identity exchange/wire exchange/link exchange/pacing
breaker: perfmodel stats meter exchange
cluster/clusterpb:
cluster: invariants admission identity cluster/clusterpb
scenario: access perfmodel placement placement/policies simulate suggest inputfile quantity
    environment dataset
replay: access perfmodel placement placement/policies stats rerun
words:
simulate/render: placement/policies simulate words
simulate/render/rendertest: simulate simulate/render
drawing: words
drawing/drawingtest: drawing
simulate/render/page: drawing placement/policies words simulate/render
analysis/render: printable analysis drawing remedy words
share: invariants
share/feed: stats staging stage share
order: invariants printable access placement dataset failure request cluster
job: audit stats staging cache stage failure request planner lockstep order
coordinator: audit placement stats dataset failure lockstep identity exchange breaker cluster
budget: size config staging failure request
assembly: size config transform/runner catalog request planner order job coordinator budget
node: audit stats dataset config failure catalog request order job assembly
groups: config failure request share share/feed job assembly node
clustersim/script: placement/policies
clustersim/judge: clustersim/script
clustersim/origin: dataset dataset/retry
clustersim/faultdisk: storageclass/file/disk
clustersim/interleave/point:
clustersim/interleave:
clustersim/machine: dataset storageclass storageclass/memory storageclass/file
    storageclass/file/disk pressure catalog budget assembly node
clustersim/process: failure request stage stats node groups placement/policies clustersim/judge
    clustersim/script
clustersim/plans: placement placement/policies planner clustersim/script
clustersim: networktest request assembly clustersim/script clustersim/judge clustersim/origin
    clustersim/faultdisk clustersim/machine clustersim/plans clustersim/process
clustersim/scale/footprint:
clustersim/scale: audit networktest stats perfmodel dataset placement lockstep coordinator
    clustersim/scale/footprint
daemon/socket:
daemon: stats dataset protocol stage failure catalog request job node daemon/socket
top: printable size stats
devcluster: wholefile
launch:
measure:
measure/loads: probe dataset digest storageclass transform measure
measure/nodes: digest exchange cluster measure
instrument: analysis measure
measure/survey: perfmodel dataset storageclass transform measure measure/loads measure/nodes
/bench/throttle:
/bench/exchange: digest identity exchange
/bench/mutants/room:
/bench/mutants/equivalent:
/bench/mutants/usage: /bench/mutants/room
/bench/mutants: clustersim/interleave /bench/mutants/equivalent /bench/mutants/room
    /bench/mutants/usage
`

// allowedInTests lists imports that only tests may add, because they assemble real parts.
const allowedInTests = `
remedy: access simulate
placement: placement/policies placement/policytest
placement/builder: perfmodel placement/policytest
placement/policies: perfmodel placement/policytest
placement/replan: placement/policies placement/policytest
placement/policytest/example: perfmodel placement/policytest simulate
dataset/folder/indexfile: crashtest dataset/folder
devcluster: crashtest proctest leaktest
exchange/pacing: devcluster
wholefile: crashtest
dataset/folder: dataset/sourcetest dataset/retry proctest
storageclass/memory: digest storageclass/storageclasstest
storageclass/file: crashtest storageclass/storageclasstest
cache: digest storageclass/memory cache/cachetest
stage/unusable: cache/digests
stage: cache/digests digest perfmodel storageclass storageclass/memory cache/cachetest
catalog: storageclass/memory storageclass/file
request: storageclass request/requesttest
exchange/wire: goldentest
exchange/link: exchange/exchangetest
exchange: goldentest exchange/exchangetest identity/identitytest
cluster: proctest digest networktest exchange identity/identitytest leaktest
simulate/render: goldentest simulate/render/rendertest
simulate/render/page: drawing/drawingtest simulate/render/rendertest
analysis/render: environment goldentest drawing/drawingtest
order: request/requesttest
planner: simulate
job: dataset storageclass cache/cachetest
coordinator: proctest digest perfmodel networktest leaktest
node: proctest digest access placement placement/policies storageclass storageclass/memory storageclass/file leaktest
    networktest stage request/requesttest budget
groups: cluster access dataset storageclass storageclass/memory networktest catalog budget stage leaktest
staging: proctest
daemon: storageclass storageclass/memory budget assembly leaktest
top: goldentest remedy
measure/loads: storageclass/memory storageclass/file
measure/nodes: networktest
clustersim: clustersim/interleave clustersim/interleave/point invariants
`

// entry is a line of these lists.
type entry struct {
	name string
	may  []string
}

// entries parses a list. An indented line continues the previous one.
func entries(t *testing.T, list string) []entry {
	t.Helper()
	var all []entry
	for line := range strings.Lines(strings.ReplaceAll(list, "\n    ", " ")) {
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		name, may, ok := strings.Cut(line, ":")
		if !ok {
			t.Fatalf("%q in the list of packages is not NAME: PACKAGE...", line)
		}
		r := entry{name: below(name)}
		for _, to := range strings.Fields(may) {
			r.may = append(r.may, below(to))
		}
		all = append(all, r)
	}
	return all
}

// below returns a package's path relative to the top, from its name in a list.
func below(name string) string {
	if top, ok := strings.CutPrefix(name, "/"); ok {
		return top
	}
	return "internal/" + name
}
