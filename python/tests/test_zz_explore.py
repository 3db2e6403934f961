import pathlib, os, tempfile, pytest
from nodes import binary, run_script
from test_nodes_forms import folder, PATH
@pytest.mark.parametrize("forms", ["auto", "off"])
def test_x(binary, folder, tmp_path, forms):
    said, done = run_script(binary, tmp_path, open("/tmp/w/fex/explore.py").read(), str(folder), forms, PYTHONPATH=PATH, HDMLP_LINGER="60s")
    print(done.stderr[-3000:])
    for v in said:
        print(v["rank"])
        [print("  ", o) for o in v["out"] if v["rank"] in (0,2)]
