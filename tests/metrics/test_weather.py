"""Weather: files as WeatherBench writes them, from reading to scores that weigh points by area."""

import numpy as np
import pytest
import torch
import xarray
from toys import seeded, stirred

from biasbound.data.formats import load, save
from biasbound.data.labelled import from_xarray
from biasbound.data.trajectories import Trajectories
from biasbound.metrics import METRICS, Scene
from biasbound.metrics.globe import Globe, latitude_weights
from biasbound.metrics.scores import persistence, score
from biasbound.metrics.weather import acc_frames, weighted_rmse_frames
from biasbound.nets import NetSpec

LATITUDES, LONGITUDES = np.linspace(78.75, -78.75, 8), np.arange(0, 360, 22.5)


def fields(frames=12):
    """z500 and t850: zonal means with waves that go east."""
    time, lat, lon = np.arange(frames), np.deg2rad(LATITUDES)[:, None], np.deg2rad(LONGITUDES)
    wave = [np.cos(lat) ** 2 * np.sin(m * lon - 0.2 * time[:, None, None]) for m in (2, 3)]
    z500, t850 = 5.4e4 + 3e3 * np.cos(lat) + 800 * wave[0], 275 + 20 * np.cos(lat) + 5 * wave[1]
    return z500.astype("f4"), t850.astype("f4")


def forecast(path, levels=False):
    """A file of one run, every six hours, with a level as a dimension or as a number beside it."""
    z500, t850 = fields()
    names = ("time", "lat", "lon")
    axes = {
        "time": np.datetime64("2018-01-01", "ns") + np.arange(12) * np.timedelta64(6, "h"),
        "lat": ("lat", LATITUDES, {"units": "degrees_north"}),
        "lon": ("lon", LONGITUDES, {"units": "degrees_east"}),
    }
    if levels:
        held = {"z": (("time", "level", "lat", "lon"), np.stack([z500, z500 - 1e4], 1))}
        axes["level"] = [500, 850]
    else:
        held = {"z500": (names, z500, {"units": "m**2 s**-2"}), "t850": (names, t850, {"units": "K"})}
        axes["level"] = 500
    xarray.Dataset(held, axes).to_netcdf(path, engine="h5netcdf")
    return load(path, dims=2) if levels else load(path)


def test_a_weather_file_is_read_with_a_longitude_that_closes_and_a_latitude_that_does_not(tmp_path):
    t = forecast(tmp_path / "weather.nc")
    assert (t.shape, t.channels, t.dt) == ((1, 12, 2, 8, 16), ("z500", "t850"), 6.0)  # hours, as the file says
    assert t.layout.boundary == ("open", "periodic")
    assert np.array_equal(t.read(0, 1)[0, :, 1], fields()[1])
    leveled = forecast(tmp_path / "levels.nc", levels=True)
    assert (leveled.channels, leveled.layout.boundary) == (("z_500", "z_850"), ("open", "periodic"))
    save(t, tmp_path / "kept.h5")  # what it lies on is kept in our own format
    assert np.allclose(Globe.of(load(tmp_path / "kept.h5")).weights, Globe.of(t).weights)


def test_a_network_for_it_closes_along_longitude_alone(tmp_path):
    t = forecast(tmp_path / "weather.nc")
    spec = NetSpec("unet", 2, 2, t.layout.grid, t.layout.boundary, {"width": 8, "multipliers": [1, 1]})
    net = stirred(spec.resolved().build(False), 0.2)
    x = torch.randn(2, 2, 8, 16, generator=seeded())
    made = net(x)
    assert torch.allclose(net(x.roll(4, -1)), made.roll(4, -1), atol=1e-4)
    assert not torch.allclose(net(x.roll(4, -2)), made.roll(4, -2), atol=1e-2)


def test_weights_are_areas_with_mean_one():
    weights = latitude_weights(LATITUDES)
    assert np.allclose(weights, np.cos(np.deg2rad(LATITUDES)) / np.cos(np.deg2rad(LATITUDES)).mean())
    assert np.isclose(weights.mean(), 1)
    assert np.allclose(latitude_weights(np.array([-90.0, 0.0, 90.0])), [0, 3, 0])
    for wrong in ([100.0, 0.0], [90.0, -90.0]):
        with pytest.raises(ValueError, match="latitudes"):
            latitude_weights(np.array(wrong))


def test_persistence_has_the_scores_of_a_hand_computation(tmp_path):
    t = forecast(tmp_path / "weather.nc")
    scores = score(persistence(t.first(), 10)[0], t, baselines=())
    w = np.cos(np.deg2rad(LATITUDES))[:, None] * np.ones(16)
    w /= w.mean()
    for name, field in zip(t.channels, np.array(fields(), dtype="f8"), strict=True):
        rmse = np.sqrt((w * (field[0] - field[10]) ** 2).mean())
        assert np.isclose(scores.value("emulator", f"weighted_rmse_{name}", 10), rmse, rtol=1e-5)
        a, b = (field[k] - field.mean(0) for k in (0, 10))
        acc = (w * a * b).sum() / np.sqrt((w * a * a).sum() * (w * b * b).sum())
        assert np.isclose(scores.value("emulator", f"acc_{name}", 10), acc, rtol=1e-4)


def test_the_truth_has_an_anomaly_correlation_of_one_the_climate_of_zero_and_its_mirror_of_minus_one(tmp_path):
    t = forecast(tmp_path / "weather.nc")
    globe, truth = Globe.of(t), t.read(0, 1).astype("f8")
    climate = np.broadcast_to(globe.climate, truth.shape)
    for channel in range(2):
        assert torch.allclose(acc_frames(truth, truth, globe, channel), torch.ones(1, 12).double())
        assert not acc_frames(climate, truth, globe, channel).any()
        assert torch.allclose(acc_frames(2 * climate - truth, truth, globe, channel), -torch.ones(1, 12).double())
        assert not weighted_rmse_frames(truth, truth, globe, channel).any()
        shifted = weighted_rmse_frames(truth + 3.0, truth, globe, channel)
        assert torch.allclose(shifted, torch.full((1, 12), 3.0).double())  # weights have mean 1


def test_broken_frames_and_masked_points_count_as_in_every_other_score(tmp_path):
    t = forecast(tmp_path / "weather.nc")
    globe, truth = Globe.of(t), t.read(0, 1)
    lost = truth.copy()
    lost[0, 3, 0, 2, 2] = np.nan
    assert weighted_rmse_frames(lost, truth, globe, 0)[0].tolist()[2:4] == [0, np.inf]
    assert acc_frames(lost, truth, globe, 0)[0, 3:].tolist() == [0.0] * 9
    mask = np.ones((8, 16), dtype=bool)
    mask[:4] = False  # the other half has the same latitudes, so that the mean weight is the same
    scene = Scene.on(t.layout, (truth + 2.0)[None], truth, mask=mask, globe=globe)
    found = {r.name: r.value.mean for r in METRICS["weather"](scene) if r.step == 1}
    assert found["weighted_rmse_z500"] == pytest.approx(2.0, rel=1e-4)


def test_the_climate_is_that_of_the_training_data():
    t = Trajectories.from_array(np.ones((2, 3, 1, 4)), dt=1.0, channels=["u"], dims=1)
    assert Globe.of(t) is None  # no latitude, no globe
    assert not list(METRICS["weather"](Scene.on(t.layout, np.ones((1, 2, 3, 1, 4)), np.ones((2, 3, 1, 4)))))
    lat = xarray.DataArray(
        np.ones((5, 4)), dims=("time", "lat"), coords={"time": np.arange(5.0), "lat": np.arange(4.0)}
    )
    one, two = from_xarray(lat), from_xarray(2 * lat)
    assert (Globe.of(one, two).climate == 2).all()
    assert (Globe.of(one).climate == 1).all()
